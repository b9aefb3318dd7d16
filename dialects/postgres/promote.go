package postgres

import "fmt"

// promoteSQL brings back what is due, in a transaction of its own that touches no
// lane: a promotion that updated lanes deadlocked with settlements. A row that a
// claim had detached loses that claim's token, else the old holder would settle the
// new one's row; and since nobody knows what became of its holder, it goes alone
// from now on. Entries stay: who settles a row removes its entry.
//
// The condition is repeated for the row as it is when it is locked.
var promoteSQL = fmt.Sprintf(`
WITH c AS MATERIALIZED (
  SELECT m.seq FROM {messages} m WHERE m.state = 1 AND m.paused_for IS NULL AND m.available_at <= now()
   ORDER BY m.available_at, m.seq LIMIT %d
     FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {messages} m
   SET state = 0, lease_token = NULL,
       company = CASE WHEN m.lease_token IS NULL THEN m.company ELSE 1 END,
       stamp   = CASE WHEN m.lease_token IS NULL THEN m.stamp ELSE m.stamp + 1 END
 WHERE m.seq = ANY (ARRAY(SELECT c.seq FROM c)) AND %s AND m.available_at <= now()`, chunk, stateIs(1))

// unparkSQL brings back rows that wait for a pause that is no more. So a resumption
// only deletes the pause, and whatever happens then, the relays bring back the rest.
// The names are found by skipping through the index, one step per name: with
// nothing parked it is one look.
var unparkSQL = fmt.Sprintf(`
WITH RECURSIVE names AS (
  (SELECT m.paused_for AS name FROM {messages} m WHERE m.paused_for IS NOT NULL ORDER BY m.paused_for LIMIT 1)
  UNION ALL
  SELECT (SELECT m.paused_for FROM {messages} m WHERE m.paused_for IS NOT NULL AND m.paused_for > n.name
           ORDER BY m.paused_for LIMIT 1)
    FROM names n WHERE n.name IS NOT NULL),
over AS MATERIALIZED (
  SELECT n.name FROM names n
   WHERE n.name IS NOT NULL AND (SELECT p.destination FROM {pauses} p WHERE p.destination = n.name LIMIT 1) IS NULL),
c AS MATERIALIZED (
  SELECT r.seq FROM over o CROSS JOIN LATERAL (
    SELECT m.seq FROM {messages} m WHERE m.paused_for = o.name AND %[2]s ORDER BY m.paused_for, m.seq LIMIT %[1]d
       FOR NO KEY UPDATE SKIP LOCKED) r
   LIMIT %[1]d)
UPDATE {messages} m
   SET state = 0, paused_for = NULL, available_at = clock_timestamp()
 WHERE m.seq = ANY (ARRAY(SELECT c.seq FROM c)) AND %[2]s AND array_position(ARRAY(SELECT o.name FROM over o), m.paused_for) IS NOT NULL`, chunk, stateIs(1))
