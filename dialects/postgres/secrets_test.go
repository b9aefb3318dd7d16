package postgres

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// TestNoSecrets: a wrong password, a missing database, nobody at the port: every
// door says what is the matter and none prints the password.
func TestNoSecrets(t *testing.T) {
	testservers.Each(t, testservers.Postgres(), func(t *testing.T, dsn string) {
		const secret = "s3cr3t-p4ss"
		db := newDatabase(t, dsn, nil)
		role := strings.ReplaceAll(db.opts.Schema, "t_", "role_")
		db.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'right' NOBYPASSRLS`)
		t.Cleanup(func() { _, _ = db.pool.Exec(context.Background(), `DROP ROLE `+role) })
		for what, change := range map[string]func(u *url.URL){
			"nobody there":        func(u *url.URL) { u.Host = "127.0.0.1:1" },
			"no such database":    func(u *url.URL) { u.Path = "/no_such_database" },
			"no such role":        func(u *url.URL) { u.User = url.UserPassword("nobody_at_all", secret) },
			"not allowed":         func(u *url.URL) { u.User = url.UserPassword(role, secret) },
			"wrong password":      func(u *url.URL) { u.Host = refusing(t) },
			"no such host at all": func(u *url.URL) { u.Host = "no.such.host.invalid:5432" },
		} {
			u, err := url.Parse(dsn)
			must(t, err)
			u.User = url.UserPassword(u.User.Username(), secret)
			change(u)
			config, err := pgxpool.ParseConfig(u.String())
			must(t, err)
			var log bytes.Buffer
			func() {
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				must(t, err)
				defer pool.Close()
				s, err := NewStore(pool, &Options{Schema: db.opts.Schema, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				must(t, err)
				var said []string
				note := func(err error) {
					if err != nil {
						said = append(said, err.Error())
					}
				}
				_, err = s.Claim(t.Context(), req(1))
				note(err)
				_, err = s.Settle(t.Context(), engine.MarkPublished(engine.Receipt{Seq: 1}))
				note(err)
				_, err = s.Extend(t.Context(), []engine.Receipt{{Seq: 1}}, 1)
				note(err)
				_, err = s.Backlog(t.Context())
				note(err)
				_, err = Migrate(t.Context(), pool, &Options{Schema: db.opts.Schema}, &MigrateOptions{DryRun: true})
				note(err)
				note(db.w.InTx(t.Context(), pool, func(pgx.Tx) error { return nil }))
				found := s.Check(t.Context())
				for _, f := range found {
					said = append(said, f.Text, f.Fix)
				}
				if len(said) == 0 || len(found) == 0 {
					t.Errorf("%s: nothing is wrong", what)
				}
				if what == "wrong password" && (len(found) == 0 || found[0].Code != "login") {
					t.Errorf("%s: %+v", what, found)
				}
				for _, f := range found {
					if want := map[bool]engine.Level{true: engine.Fatal, false: engine.Retry}[what == "not allowed" && f.Code == "permission"]; f.Level != want {
						t.Errorf("%s: %+v", what, f)
					}
				}
				if all := strings.Join(said, "\n") + log.String(); strings.Contains(all, secret) {
					t.Errorf("%s: the password is in %s", what, all)
				}
			}()
		}
	})
}

// refusing is a server that refuses every login; the ones of the tests trust
// everybody.
func refusing(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b := pgproto3.NewBackend(conn, conn)
			if _, err := b.ReceiveStartupMessage(); err == nil {
				b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "28P01", Message: "password authentication failed"})
				_ = b.Flush()
			}
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// TestReadOnly: after a fail-over the old primary is a replica; the pool must not
// go on talking to it (go-sql-driver/mysql#604).
func TestReadOnly(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		readOnly, connects := true, 0
		s := db.open(func(c *pgxpool.Config) {
			c.MaxConns = 1
			c.BeforeConnect = func(_ context.Context, conf *pgx.ConnConfig) error {
				connects++
				conf.RuntimeParams["default_transaction_read_only"] = map[bool]string{true: "on", false: "off"}[readOnly]
				return nil
			}
		})
		db.enqueue(msg("t", ""))
		if found := s.Check(t.Context()); len(found) != 1 || found[0].Code != "read_only" || found[0].Level != engine.Retry {
			t.Errorf("%+v", found)
		}
		if _, err := s.Claim(t.Context(), req(1)); err == nil {
			t.Fatal("claimed on a read-only server")
		}
		readOnly = false // the address leads to the new primary
		if c := db.claim(s, req(1)); len(c) != 1 || connects != 2 {
			t.Errorf("%d messages after %d connections", len(c), connects)
		}
	})
}
