// Package sqlrows reads results by database/sql, for the dialects that go by it.
package sqlrows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A Queryer is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ErrEnough of scan says that no more rows are wanted; it is no error of Query's.
var ErrEnough = errors.New("enough")

// Query runs a statement and calls scan for each row of its result. Its errors begin
// with name.
func Query(ctx context.Context, q Queryer, name, query string, scan func(rows *sql.Rows) error, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() {
		if cerr := rows.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("%s: %w", name, cerr)
		}
	}()
	for rows.Next() {
		if err := scan(rows); errors.Is(err, ErrEnough) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Collect is a scan for a result of one column.
func Collect[T any](into *[]T) func(rows *sql.Rows) error {
	*into = (*into)[:0]
	return func(rows *sql.Rows) error {
		var v T
		if err := rows.Scan(&v); err != nil {
			return err
		}
		*into = append(*into, v)
		return nil
	}
}
