package matrix

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/outward-dev/outward/dialects/sqlite"
	"github.com/outward-dev/outward/engine"
)

// sqliteHearing opens a store whose driver calls heard after each statement.
func sqliteHearing(path string, heard func()) (engine.Store, error) {
	plain, err := sql.Open("sqlite", sqlite.DSN(path))
	if err != nil {
		return nil, err
	}
	return sqlite.NewStore(sql.OpenDB(&sqliteConnector{plain.Driver(), sqlite.DSN(path), heard}), nil)
}

type sqliteConnector struct {
	driver driver.Driver
	dsn    string
	heard  func()
}

func (c *sqliteConnector) Driver() driver.Driver { return c.driver }

func (c *sqliteConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(sqliteFull)
	if !ok {
		return nil, fmt.Errorf("%T lacks an ability that the wrapper would pretend", conn)
	}
	return &sqliteConn{full, c.heard}, nil
}

// sqliteFull is what database/sql finds in a connection of the driver.
type sqliteFull interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type sqliteConn struct {
	sqliteFull
	heard func()
}

// ExecContext is how the dialect commits, too.
func (c *sqliteConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.sqliteFull.ExecContext(ctx, query, args)
	c.heard()
	return res, err
}

func (c *sqliteConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.sqliteFull.QueryContext(ctx, query, args)
	c.heard()
	return rows, err
}
