package matrix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/dialects/postgres"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// relaysOf is what the sessions of a table's relays are called.
func relaysOf(address string) string {
	_, schema, _ := strings.Cut(address, "#")
	return "relays of " + schema
}

var postgresDialect = dialect{
	name:    "postgres",
	servers: testservers.Postgres(),
	typical: "pg17",
	session: func(address, name, value string) string {
		u, err := url.Parse(address)
		if err != nil {
			panic("the address can't be parsed") // without it: it has a password
		}
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // a plus is a plus to PostgreSQL's clients
		return u.String()
	},
	login: func(t *testing.T, address string) *login {
		pool, err := pgxpool.New(t.Context(), address[:strings.Index(address, "#")])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		do := func(ctx context.Context, sql string) {
			if _, err := pool.Exec(ctx, sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
		name := "matrix_" + strings.ToLower(rand.Text()[:10])
		do(t.Context(), "CREATE ROLE "+name+" SUPERUSER LOGIN PASSWORD 'right'")
		t.Cleanup(func() { do(context.Background(), "DROP ROLE "+name) })
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal("the address can't be parsed")
		}
		u.User = url.UserPassword(name, "right")
		return &login{
			address: u.String(),
			wrong: func() {
				// Not by another password alone: a server that trusts its host asks for none.
				do(t.Context(), "ALTER ROLE "+name+" NOLOGIN PASSWORD 'another'")
				do(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+name+"'")
			},
			right: func() { do(t.Context(), "ALTER ROLE "+name+" LOGIN PASSWORD 'right'") },
		}
	},
	refused: func(err error) bool {
		var refusal *pgconn.PgError
		return errors.As(err, &refusal) && refusal.Severity == "ERROR"
	},
	undecodable: []string{
		"ALTER TABLE {p}messages DROP CONSTRAINT IF EXISTS outbox_messages_headers_check",
		"INSERT INTO {p}messages (message_id, topic, type, headers) VALUES ('{id}', '" + topicOne + "', '" + kind + "', '[1]')",
	},
	text: func(n int) string { return fmt.Sprintf("repeat('x', %d)", n) },
	connections: func(ctx context.Context, o *outbox) (n int, err error) {
		// A backend sees that its client is gone when it is done with what it does.
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err = o.query(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+relaysOf(o.address)+"'",
				func(scan func(...any) error) error { return scan(&n) })
			if err != nil || n == 0 || time.Now().After(end) {
				return n, err
			}
		}
	},
	create: func(t *testing.T, server string) string {
		dsn := testservers.DSN(t, server)
		schema := "matrix_" + strings.ToLower(rand.Text()[:10])
		pool, err := pgxpool.New(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		if _, err := pool.Exec(t.Context(), "CREATE SCHEMA "+schema); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := pool.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE"); err != nil {
				t.Errorf("the schema stays behind: %v", err)
			}
		})
		if _, err := postgres.Migrate(t.Context(), pool, &postgres.Options{Schema: schema}, nil); err != nil {
			t.Fatal(err)
		}
		return dsn + "#" + schema
	},
	open: func(address string) (*outbox, error) {
		dsn, schema, _ := strings.Cut(address, "#")
		pool, err := pgxpool.New(context.Background(), dsn)
		if err != nil {
			return nil, err
		}
		opts := &postgres.Options{Schema: schema}
		store, err := postgres.NewStore(pool, opts)
		if err != nil {
			return nil, err
		}
		writer, err := postgres.NewWriter(opts)
		if err != nil {
			return nil, err
		}
		return &outbox{
			address: address,
			store:   store,
			close:   pool.Close,
			enqueue: func(ctx context.Context, commit func(context.Context) error, msgs ...engine.Message) (ids []engine.ID, err error) {
				err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if ids, err = writer.Enqueue(ctx, tx, msgs...); err == nil && commit != nil {
						err = commit(ctx)
					}
					return err
				})
				return ids, err
			},
			exec: func(ctx context.Context, sql string) error {
				_, err := pool.Exec(ctx, strings.ReplaceAll(sql, "{p}", schema+".outbox_"))
				return err
			},
			query: func(ctx context.Context, sql string, row func(scan func(...any) error) error) error {
				rows, err := pool.Query(ctx, strings.ReplaceAll(sql, "{p}", schema+".outbox_"))
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
				tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
				if err != nil {
					return nil, err
				}
				var n int
				if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s.outbox_lanes", schema)).Scan(&n); err != nil {
					return nil, err
				}
				return func() { _ = tx.Rollback(context.Background()) }, nil
			},
		}, nil
	},
}
