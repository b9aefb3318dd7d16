package matrix

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver

	"github.com/outward-dev/outward/dialects/sqlite"
	"github.com/outward-dev/outward/engine"
)

// SQLite needs no server; every process of a test opens the same file.
var sqliteDialect = dialect{
	name:    "sqlite",
	servers: []string{"sqlite"},
	local:   true,
	undecodable: []string{
		"INSERT INTO {p}messages (message_id, topic, type, headers) VALUES ('{id}', '" + topicOne + "', '" + kind + "', '{\"a\": 1}')",
	},
	text: func(n int) string { return fmt.Sprintf("printf('%%.*c', %d, 'x')", n) },
	less: 10, // it is Go, and so instrumented
	create: func(t *testing.T, _ string) string {
		path := filepath.Join(t.TempDir(), "matrix.db")
		db, err := sql.Open("sqlite", sqlite.DSN(path))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := sqlite.Migrate(t.Context(), db, nil, nil); err != nil {
			t.Fatal(err)
		}
		return path
	},
	open: func(path string) (*outbox, error) {
		db, err := sql.Open("sqlite", sqlite.DSN(path))
		if err != nil {
			return nil, err
		}
		store, err := sqlite.NewStore(db, nil)
		if err != nil {
			return nil, err
		}
		writer, err := sqlite.NewWriter(nil)
		if err != nil {
			return nil, err
		}
		return &outbox{
			store: store,
			close: func() { _ = db.Close() }, // what was committed is on the disk
			enqueue: func(ctx context.Context, commit func(context.Context) error, msgs ...engine.Message) (ids []engine.ID, err error) {
				err = writer.InTx(ctx, db, func(tx *sqlite.Tx) error {
					if ids, err = writer.Enqueue(ctx, tx, msgs...); err == nil && commit != nil {
						err = commit(ctx)
					}
					return err
				})
				return ids, err
			},
			exec: func(ctx context.Context, query string) error {
				_, err := db.ExecContext(ctx, strings.ReplaceAll(query, "{p}", "outbox_"))
				return err
			},
			query: func(ctx context.Context, query string, row func(scan func(...any) error) error) error {
				rows, err := db.QueryContext(ctx, strings.ReplaceAll(query, "{p}", "outbox_"))
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
					if err := row(rows.Scan); err != nil {
						return err
					}
				}
				return rows.Err()
			},
			hold: func(ctx context.Context) (func(), error) {
				conn, err := db.Conn(ctx)
				if err != nil {
					return nil, err
				}
				var n int
				if _, err = conn.ExecContext(ctx, "BEGIN DEFERRED"); err == nil {
					err = conn.QueryRowContext(ctx, "SELECT count(*) FROM outbox_lanes").Scan(&n)
				}
				if err != nil {
					_ = conn.Close() // the first error is told
					return nil, err
				}
				return func() {
					_, _ = conn.ExecContext(context.Background(), "ROLLBACK") // closing ends it as well
					_ = conn.Close()
				}, nil
			},
		}, nil
	},
}
