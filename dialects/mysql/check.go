package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/engine"
)

// Check implements [engine.Checker]. It changes nothing.
func (s *Store) Check(ctx context.Context) []engine.Finding {
	return schema.Findings(
		func(add schema.Adder) bool { return s.checkServer(ctx, add) },
		func(add schema.Adder) bool { return s.checkSchema(ctx, add) },
		func(add schema.Adder) bool { return s.checkTable(ctx, add) },
	)
}

// addError files an error of the database as what it means to a relay.
func addError(add schema.Adder, err error) {
	switch number(err) {
	case 0:
		add(engine.Retry, "unreachable", "check the address and that the server runs; the relay goes on trying", "the database can't be reached: %v", err)
	case 1045, 1044, 1251, 1698, 1862, 3118: // access denied, wrong plugin, password expired, account locked
		add(engine.Retry, "login", "check user and password; the relay goes on trying", "the database refuses the login: %v", err)
	case 1049, 1046:
		add(engine.Retry, "no_database", "create the database, or correct its name in the address", "the database does not exist: %v", err)
	case 1142, 1143, 1227:
		add(engine.Fatal, "permission", "grant SELECT, INSERT, UPDATE and DELETE on the outbox tables to the relay's user", "the user may not do what a relay does: %v", err)
	case errReadOnly, errReadOnlyTx, errInnoRO, errReadOnlyMDB:
		add(engine.Retry, "read_only", "point the relay at the primary; during a fail-over it goes on trying", "the server accepts no writes: %v", err)
	default:
		add(engine.Retry, "failed", "", "the check failed: %v", err)
	}
}

// variablesSQL asks for what this server has of these: neither product knows all.
const variablesSQL = `
SHOW VARIABLES WHERE Variable_name IN ('version', 'read_only', 'super_read_only', 'innodb_read_only', 'autocommit', 'auto_increment_increment',
  'binlog_format', 'log_bin', 'wsrep_on', 'innodb_flush_log_at_trx_commit', 'lower_case_table_names', 'max_allowed_packet')`

func (s *Store) checkServer(ctx context.Context, add schema.Adder) (stop bool) {
	v := map[string]string{}
	err := queryRows(ctx, s.db, "variables", variablesSQL, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		v[name] = value
		return err
	})
	if err != nil {
		addError(add, err)
		return true
	}
	product, oldest := "MySQL", [2]int{8, 0}
	if strings.Contains(v["version"], "MariaDB") {
		product, oldest = "MariaDB", [2]int{10, 6}
	}
	if have, ok := version(v["version"]); ok && (have[0] < oldest[0] || have[0] == oldest[0] && have[1] < oldest[1]) {
		add(engine.Fatal, "server_version", fmt.Sprintf("use %s %d.%d or newer", product, oldest[0], oldest[1]), "the server has version %s; the oldest supported one is %d.%d", v["version"], oldest[0], oldest[1])
		return true
	}
	on := func(name string) bool { return v[name] == "ON" || v[name] == "1" }
	if on("read_only") || on("super_read_only") || on("innodb_read_only") {
		add(engine.Retry, "read_only", "point the relay at the primary; during a fail-over it goes on trying", "the server accepts no writes: it is a replica, or read-only")
		return true
	}
	if !on("autocommit") {
		add(engine.Fatal, "autocommit", "open the database without autocommit=0", "autocommit is off: every look at the table would leave a transaction open")
	}
	if v["auto_increment_increment"] != "1" {
		add(engine.Fatal, "auto_increment", "write the outbox on one node, with auto_increment_increment = 1",
			"the numbers of %s rise by %s: that is how writers on several primaries share them, and then no order per key can be kept", s.names.table(), v["auto_increment_increment"])
	}
	if on("wsrep_on") {
		add(engine.Warning, "multi_primary", "write to one node only", "the server is a node of a Galera cluster: with writers on several nodes no order per key can be kept")
	}
	if on("log_bin") && v["binlog_format"] == "STATEMENT" {
		add(engine.Fatal, "binlog_format", "set binlog_format = ROW", "binlog_format is STATEMENT: the relay's READ COMMITTED transactions can't be logged so")
	}
	if v["innodb_flush_log_at_trx_commit"] != "1" {
		add(engine.Note, "durability", "set innodb_flush_log_at_trx_commit = 1", "innodb_flush_log_at_trx_commit is %s: a crash can undo the last commits, of the business too, after their messages went out", v["innodb_flush_log_at_trx_commit"])
	}
	return false
}

// version is the first two numbers of a server's version.
func version(text string) (v [2]int, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return v, false
	}
	var errs [2]error
	for i := range v {
		v[i], errs[i] = strconv.Atoi(parts[i])
	}
	return v, errs[0] == nil && errs[1] == nil
}

func (s *Store) checkSchema(ctx context.Context, add schema.Adder) (stop bool) {
	have, err := readSettings(ctx, s.db, s.names)
	return schema.Check(add, have, err, s.want, s.names.table(), func(err error) { addError(add, err) })
}

const (
	checkLanesSQL   = `SELECT COUNT(*) FROM {lanes} WHERE lane BETWEEN 0 AND 63`
	checkIndexesSQL = `SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = '{p}messages'`
	checkEngineSQL  = `SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{p}messages'`
)

func (s *Store) checkTable(ctx context.Context, add schema.Adder) (stop bool) {
	n := s.names
	var counts []int
	var indexes, engines []string
	for _, q := range []struct {
		query string
		scan  func(*sql.Rows) error
	}{{checkLanesSQL, sqlrows.Collect(&counts)}, {checkIndexesSQL, sqlrows.Collect(&indexes)}, {checkEngineSQL, sqlrows.Collect(&engines)}} {
		if err := queryRows(ctx, s.db, "check", n.sql(q.query), q.scan); err != nil {
			addError(add, err)
			return true
		}
	}
	if len(counts) != 1 || counts[0] != lanes {
		add(engine.Fatal, "lanes", "put back the missing rows of "+n.sql("{lanes}")+", as the first migration makes them",
			"%s has %v lanes of %d: messages of the missing ones would never go", n.prefix+"lanes", counts, lanes)
	}
	if len(engines) == 1 && !strings.EqualFold(engines[0], "InnoDB") {
		add(engine.Fatal, "engine", "ALTER TABLE "+n.sql("{messages}")+" ENGINE = InnoDB", "%s is a table of the engine %s: it knows no transactions", n.table(), engines[0])
	}
	have := map[string]bool{}
	for _, name := range indexes {
		have[name] = true
	}
	var missing []string
	for _, name := range []string{"message_id", "ready", "due", "held", "state", "parked"} {
		if name = n.prefix + "messages_" + name; !have[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		add(engine.Warning, "index", "create them as in: outward migrate print", "indexes are missing: %s; claims will be slow", strings.Join(missing, ", "))
	}
	return false
}
