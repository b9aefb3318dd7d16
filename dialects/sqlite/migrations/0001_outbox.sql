-- What still has to go, and what is dead. The table is a public contract: any program
-- enqueues with one INSERT of the columns it has, the sqlite3 program too, so nothing
-- here needs a function that is not built into SQLite. Instants are microseconds since
-- 1970 in UTC. AUTOINCREMENT: a number is never given twice, also after a DELETE.
CREATE TABLE {messages} (
    seq               INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id        TEXT    NOT NULL DEFAULT (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
                              || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    topic             TEXT    NOT NULL,
    ordering_key      TEXT,
    type              TEXT    NOT NULL,
    aggregate_type    TEXT,
    aggregate_id      TEXT,
    aggregate_version INTEGER,
    correlation_id    TEXT,
    content_type      TEXT    NOT NULL DEFAULT 'application/json',
    headers           TEXT    NOT NULL DEFAULT '{}',
    payload           BLOB,
    payload_text      TEXT,
    occurred_at       INTEGER NOT NULL DEFAULT ({now}),
    available_at      INTEGER NOT NULL DEFAULT ({now}),
    created_at        INTEGER NOT NULL DEFAULT ({now}),
    -- Rows of one key share a lane; rows without a key take turns. The key's last eight
    -- characters differ most often, so the lane is made of them, of the one in the middle
    -- and of the length.
    lane              INTEGER NOT NULL GENERATED ALWAYS AS (CASE WHEN ordering_key <> '' THEN {hash} ELSE seq END & 63) STORED,
    state             INTEGER NOT NULL DEFAULT 0, -- 0 ready, 1 waiting, 2 held, 3 dead
    attempts          INTEGER NOT NULL DEFAULT 0,
    crashes           INTEGER NOT NULL DEFAULT 0,
    resends           INTEGER NOT NULL DEFAULT 0,
    stamp             INTEGER NOT NULL DEFAULT 0,
    company           INTEGER NOT NULL DEFAULT 0,
    lease_token       TEXT,
    paused_for        TEXT,
    first_failed_at   INTEGER,
    last_attempt_at   INTEGER,
    dead_at           INTEGER,
    last_error        TEXT,
    last_error_class  TEXT,
    CONSTRAINT "{p}messages_message_id_key"       UNIQUE (message_id),
    -- The canonical text of a UUID, in lower case: another spelling would be another id.
    CONSTRAINT "{p}messages_message_id_check"     CHECK (message_id GLOB '????????-????-????-????-????????????' AND message_id NOT GLOB '*[^0-9a-f-]*'
                                                     AND length(replace(message_id, '-', '')) = 32),
    CONSTRAINT "{p}messages_topic_check"          CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 255),
    CONSTRAINT "{p}messages_ordering_key_check"   CHECK (typeof(ordering_key) IN ('text', 'null') AND coalesce(length(ordering_key), 0) <= 255),
    CONSTRAINT "{p}messages_type_check"           CHECK (typeof(type) = 'text' AND length(type) BETWEEN 1 AND 255),
    CONSTRAINT "{p}messages_aggregate_type_check" CHECK (typeof(aggregate_type) IN ('text', 'null') AND coalesce(length(aggregate_type), 0) <= 255),
    CONSTRAINT "{p}messages_aggregate_id_check"   CHECK (typeof(aggregate_id) IN ('text', 'null') AND coalesce(length(aggregate_id), 0) <= 255),
    CONSTRAINT "{p}messages_aggregate_version_check" CHECK (typeof(aggregate_version) IN ('integer', 'null')),
    CONSTRAINT "{p}messages_correlation_id_check" CHECK (typeof(correlation_id) IN ('text', 'null') AND coalesce(length(correlation_id), 0) <= 255),
    CONSTRAINT "{p}messages_content_type_check"   CHECK (typeof(content_type) = 'text' AND length(content_type) <= 255),
    -- That every value is a string can't be said here, for a CHECK has no subqueries. A
    -- row with another value is found when it is claimed.
    CONSTRAINT "{p}messages_headers_check"        CHECK (typeof(headers) = 'text' AND CASE WHEN json_valid(headers) THEN json_type(headers) = 'object' ELSE 0 END),
    CONSTRAINT "{p}messages_payload_check"        CHECK (payload IS NULL OR payload_text IS NULL),
    -- Text is taken as its bytes: the sqlite3 program makes it of every '...'.
    CONSTRAINT "{p}messages_payload_type_check"   CHECK (typeof(payload) IN ('blob', 'text', 'null') AND typeof(payload_text) IN ('text', 'null')),
    CONSTRAINT "{p}messages_occurred_at_check"    CHECK (typeof(occurred_at) = 'integer' AND occurred_at BETWEEN -62135596800000000 AND 253402300799999999),
    CONSTRAINT "{p}messages_available_at_check"   CHECK (typeof(available_at) = 'integer'),
    CONSTRAINT "{p}messages_created_at_check"     CHECK (typeof(created_at) = 'integer'),
    CONSTRAINT "{p}messages_state_check"          CHECK (state BETWEEN 0 AND 3)
);
-- One partial index per question, each with a literal predicate that the statements
-- repeat; without that the planner can't prove that it may use them.
CREATE INDEX "{p}messages_ready"    ON {messages} (lane, seq) WHERE state = 0;
CREATE INDEX "{p}messages_due"      ON {messages} (available_at, seq) WHERE state = 1;
CREATE INDEX "{p}messages_parked"   ON {messages} (paused_for, seq) WHERE state = 1 AND paused_for IS NOT NULL;
CREATE INDEX "{p}messages_detached" ON {messages} (lease_token) WHERE state = 1 AND lease_token IS NOT NULL;
CREATE INDEX "{p}messages_held"     ON {messages} (ordering_key, seq) WHERE state = 2;
CREATE INDEX "{p}messages_aside"    ON {messages} (seq) WHERE state IN (1, 2);
CREATE INDEX "{p}messages_dead"     ON {messages} (seq) WHERE state = 3;

-- What was settled, appended in the transaction that settles it. Nothing here can make
-- that transaction fail: neither the message id nor anything else but id is unique.
CREATE TABLE {archive} (
    id                INTEGER PRIMARY KEY,
    seq               INTEGER NOT NULL,
    message_id        TEXT    NOT NULL,
    topic             TEXT    NOT NULL,
    ordering_key      TEXT,
    type              TEXT    NOT NULL,
    aggregate_type    TEXT,
    aggregate_id      TEXT,
    aggregate_version INTEGER,
    correlation_id    TEXT,
    content_type      TEXT    NOT NULL,
    headers           TEXT,
    payload           BLOB,
    payload_text      TEXT,
    occurred_at       INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    attempts          INTEGER NOT NULL,
    crashes           INTEGER NOT NULL,
    resends           INTEGER NOT NULL,
    first_failed_at   INTEGER,
    last_attempt_at   INTEGER,
    dead_at           INTEGER,
    last_error        TEXT,
    last_error_class  TEXT,
    outcome           TEXT    NOT NULL,
    settled_at        INTEGER NOT NULL DEFAULT ({now}),
    settled_by        TEXT    NOT NULL DEFAULT '',
    reason            TEXT    NOT NULL DEFAULT '',
    content           INTEGER NOT NULL, -- whether payload and headers were kept
    CONSTRAINT "{p}archive_outcome_check" CHECK (outcome IN ('published', 'discarded'))
);
CREATE INDEX "{p}archive_settled"    ON {archive} (settled_at, seq, outcome);
CREATE INDEX "{p}archive_message_id" ON {archive} (message_id, settled_at, seq);

-- The unit of claim. Freeing a lane keeps its token: a lane is free when its lease is
-- over and it has handed out nothing. used counts claims: a clock that is set back must
-- not change whose turn it is.
CREATE TABLE {lanes} (
    lane         INTEGER PRIMARY KEY,
    token        TEXT,
    lease_until  INTEGER NOT NULL DEFAULT 0,
    used         INTEGER NOT NULL DEFAULT 0,
    worker       TEXT    NOT NULL DEFAULT '',
    handed       TEXT    NOT NULL DEFAULT '[]', -- [[seq, stamp], …]
    handed_total INTEGER NOT NULL DEFAULT 0
);
INSERT INTO {lanes} (lane) WITH RECURSIVE n(lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 63) SELECT lane FROM n;

-- One entry per row that holds back its key. seq 0 is smaller than every number: it
-- holds back the whole key while held rows are being released in chunks.
CREATE TABLE {blocks} (
    ordering_key TEXT    NOT NULL,
    seq          INTEGER NOT NULL,
    lane         INTEGER NOT NULL,
    PRIMARY KEY (ordering_key, seq)
) WITHOUT ROWID;
CREATE INDEX "{p}blocks_draining" ON {blocks} (lane) WHERE seq = 0;
CREATE INDEX "{p}blocks_oldest"   ON {blocks} (seq) WHERE seq > 0;

-- Destinations that nothing is sent to now, for all relays on the table.
CREATE TABLE {pauses} (
    destination TEXT    NOT NULL PRIMARY KEY,
    by_name     TEXT    NOT NULL,
    by_relay    INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    class       TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    probe_at    INTEGER NOT NULL
) WITHOUT ROWID;

-- Who did what, and why.
CREATE TABLE {audit} (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          INTEGER NOT NULL DEFAULT ({now}),
    actor       TEXT    NOT NULL,
    by_relay    INTEGER NOT NULL,
    action      TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    destination TEXT    NOT NULL DEFAULT '',
    affected    INTEGER NOT NULL DEFAULT 0,
    message_ids TEXT    NOT NULL DEFAULT '[]'
);

-- One row: which schema this is, and what holds for the table as a whole. Times are
-- microseconds.
CREATE TABLE {schema_} (
    one               INTEGER NOT NULL PRIMARY KEY DEFAULT 1,
    version           INTEGER NOT NULL,
    min_client        INTEGER NOT NULL,
    retention         INTEGER NOT NULL,
    archive           TEXT    NOT NULL,
    discard_retention INTEGER NOT NULL,
    CONSTRAINT "{p}schema_one_check"     CHECK (one = 1),
    CONSTRAINT "{p}schema_archive_check" CHECK (archive IN ('full', 'metadata'))
);

-- What is waiting and what was settled, in one view.
CREATE VIEW {all} AS
SELECT seq, message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
       content_type, headers, payload, payload_text, occurred_at, created_at, attempts, crashes, resends,
       CASE state WHEN 0 THEN 'ready' WHEN 1 THEN 'waiting' WHEN 2 THEN 'held' ELSE 'dead' END AS status,
       last_error, last_error_class, dead_at, NULL AS settled_at
  FROM {messages}
UNION ALL
SELECT seq, message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
       content_type, headers, payload, payload_text, occurred_at, created_at, attempts, crashes, resends,
       outcome, last_error, last_error_class, dead_at, settled_at
  FROM {archive};
