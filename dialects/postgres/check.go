package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/engine"
)

// oldestServer is the oldest server that the tests run on.
const oldestServer = 150000

// Check implements [engine.Checker].
func (s *Store) Check(ctx context.Context) []engine.Finding {
	return schema.Findings(
		func(add schema.Adder) bool { return s.checkServer(ctx, add) },
		func(add schema.Adder) bool { return s.checkSchema(ctx, add) },
		func(add schema.Adder) bool { return s.checkTable(ctx, add) },
	)
}

// addError files an error of the database as what it means to a relay.
func addError(add schema.Adder, err error) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		add(engine.Retry, "unreachable", "check the address and that the server runs; the relay goes on trying", "the database can't be reached: %v", err)
		return
	}
	switch {
	case strings.HasPrefix(pgErr.Code, "28"):
		add(engine.Retry, "login", "check user and password; the relay goes on trying", "the database refuses the login: %v", err)
	case pgErr.Code == "3D000":
		add(engine.Retry, "no_database", "create the database, or correct its name in the address", "the database does not exist: %v", err)
	case pgErr.Code == "42501":
		add(engine.Fatal, "permission", "grant SELECT, INSERT, UPDATE and DELETE on the outbox tables to the relay's role", "the role may not do what a relay does: %v", err)
	default:
		add(engine.Retry, "failed", "", "the check failed: %v", err)
	}
}

func (s *Store) checkServer(ctx context.Context, add schema.Adder) (stop bool) {
	var version int
	var replica bool
	var encoding, autovacuum, syncCommit string
	err := s.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::integer, pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
		current_setting('server_encoding'), current_setting('autovacuum'), current_setting('synchronous_commit')`).
		Scan(&version, &replica, &encoding, &autovacuum, &syncCommit)
	if err != nil {
		addError(add, err)
		return true
	}
	if version < oldestServer {
		add(engine.Fatal, "server_version", "use PostgreSQL 15 or newer", "the server has version %d; the oldest supported one is %d", version, oldestServer)
		return true
	}
	if replica {
		add(engine.Retry, "read_only", "point the relay at the primary; during a fail-over it goes on trying", "the server accepts no writes: it is a replica, or the role's transactions are read-only")
		return true
	}
	if encoding != "UTF8" {
		add(engine.Warning, "encoding", "keep the outbox in a database with encoding UTF8", "the database has encoding %s: text of other writers may not be readable", encoding)
	}
	if autovacuum != "on" {
		add(engine.Warning, "autovacuum", "set autovacuum = on", "autovacuum is off: claims become slower with every message that was settled")
	}
	if syncCommit == "off" {
		add(engine.Note, "synchronous_commit", "set synchronous_commit = on for the relay's role", "synchronous_commit is off: after a crash of the server the last settled messages may be sent again")
	}
	return false
}

func (s *Store) checkSchema(ctx context.Context, add schema.Adder) (stop bool) {
	have, err := readSettings(ctx, s.pool, s.names)
	return schema.Check(add, have, err, s.want, s.names.table(), func(err error) { addError(add, err) })
}

const checkTableSQL = `
SELECT (SELECT count(*) FROM {lanes} WHERE lane BETWEEN 0 AND 63),
       coalesce(q.seqcache, -1), coalesce(q.seqincrement, -1), coalesce(q.seqcycle, false),
       coalesce((SELECT 'autovacuum_enabled=false' = ANY (c.reloptions) FROM pg_class c WHERE c.oid = to_regclass($1::text)), false),
       (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_xmin IS NOT NULL AND a.xact_start < now() - interval '15 minutes'),
       coalesce((SELECT string_agg(i.name, ', ') FROM unnest($2::text[]) AS i(name)
          WHERE NOT EXISTS (SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
                             WHERE x.indrelid = to_regclass($1::text) AND c.relname = i.name AND x.indisvalid)), ''),
       coalesce((SELECT string_agg(e.extname, ', ') FROM pg_extension e WHERE e.extname IN ('bdr', 'spock', 'pgactive')), '')
  FROM (SELECT pg_get_serial_sequence($1::text, 'seq')::regclass AS oid) s
  LEFT JOIN pg_sequence q ON q.seqrelid = s.oid`

func (s *Store) checkTable(ctx context.Context, add schema.Adder) (stop bool) {
	n := s.names
	indexes := []string{}
	for _, name := range []string{"ready", "due", "parked", "detached", "held", "aside", "dead", "message_id_key", "pkey"} {
		indexes = append(indexes, n.prefix+"messages_"+name)
	}
	var laneCount, snapshots int
	var cache, increment int64
	var cycle, vacuumOff bool
	var missing, primaries string
	err := s.pool.QueryRow(ctx, n.sql(checkTableSQL), n.sql("{messages}"), indexes).
		Scan(&laneCount, &cache, &increment, &cycle, &vacuumOff, &snapshots, &missing, &primaries)
	if err != nil {
		addError(add, err)
		return true
	}
	sequence := fmt.Sprintf("ALTER TABLE %s ALTER COLUMN seq SET", n.sql("{messages}"))
	if laneCount != lanes {
		add(engine.Fatal, "lanes", "put back the missing rows: INSERT INTO "+n.sql("{lanes}")+" (lane) SELECT generate_series(0, 63) ON CONFLICT DO NOTHING",
			"%s has %d lanes of %d: messages of the missing ones would never go", n.sql("{lanes}"), laneCount, lanes)
	}
	if cache > 1 {
		add(engine.Fatal, "sequence_cache", sequence+" CACHE 1", "the numbers of %s are cached by session (CACHE %d): they don't rise with the commits, so no order per key can be kept", n.table(), cache)
	}
	if increment != 1 && cache >= 0 {
		add(engine.Fatal, "sequence_increment", sequence+" INCREMENT BY 1", "the numbers of %s rise by %d: that is how writers on several primaries share a sequence, and then no order per key can be kept", n.table(), increment)
	}
	if cache < 0 {
		add(engine.Fatal, "sequence", "make the column an identity again, as the first migration has it", "the column seq of %s has no sequence of its own", n.table())
	}
	if cycle {
		add(engine.Fatal, "sequence_cycle", sequence+" NO CYCLE", "the numbers of %s begin again when they are used up", n.table())
	}
	if primaries != "" {
		add(engine.Warning, "multi_primary", "write to one primary only", "the extension %s is installed: with writers on several primaries no order per key can be kept", primaries)
	}
	if missing != "" {
		add(engine.Warning, "index", "create them as in: outward migrate print", "indexes are missing or not valid: %s; claims will be slow", missing)
	}
	if vacuumOff {
		add(engine.Warning, "autovacuum_table", "ALTER TABLE "+n.sql("{messages}")+" RESET (autovacuum_enabled)", "autovacuum is off for %s: claims become slower with every message that was settled", n.table())
	}
	if snapshots > 0 {
		add(engine.Note, "old_snapshot", "look at pg_stat_activity for long transactions", "%d transactions have kept a snapshot for more than 15 minutes: what was settled since can't be cleaned up, and claims become slower", snapshots)
	}
	return false
}
