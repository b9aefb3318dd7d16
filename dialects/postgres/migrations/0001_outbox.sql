-- What still has to go, and what is dead. The table is a public contract: any program
-- enqueues with one INSERT of the columns it has. Text is "text" with a CHECK, for
-- varchar(255) would cut trailing blanks without a word; it compares byte by byte (C).
CREATE TABLE {messages} (
    seq               bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1),
    message_id        uuid        NOT NULL DEFAULT gen_random_uuid(),
    topic             text        COLLATE "C" NOT NULL,
    ordering_key      text        COLLATE "C",
    type              text        COLLATE "C" NOT NULL,
    aggregate_type    text        COLLATE "C",
    aggregate_id      text        COLLATE "C",
    aggregate_version bigint,
    correlation_id    text        COLLATE "C",
    content_type      text        COLLATE "C" NOT NULL DEFAULT 'application/json',
    headers           jsonb       NOT NULL DEFAULT '{}',
    payload           bytea,
    payload_text      text,
    occurred_at       timestamptz NOT NULL DEFAULT now(),
    available_at      timestamptz NOT NULL DEFAULT now(),
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Rows of one key share a lane; rows without a key spread evenly. The hash is the
    -- database's own and nothing outside ever computes it, so a restore may find another.
    lane              smallint    NOT NULL GENERATED ALWAYS AS
                      ((CASE WHEN ordering_key <> '' THEN hashtextextended(ordering_key, 0) ELSE seq END & 63)::smallint) STORED,
    state             smallint    NOT NULL DEFAULT 0, -- 0 ready, 1 waiting, 2 held, 3 dead
    attempts          integer     NOT NULL DEFAULT 0,
    crashes           integer     NOT NULL DEFAULT 0,
    resends           integer     NOT NULL DEFAULT 0,
    stamp             integer     NOT NULL DEFAULT 0,
    company           integer     NOT NULL DEFAULT 0,
    lease_token       uuid,
    paused_for        text        COLLATE "C",
    first_failed_at   timestamptz,
    last_attempt_at   timestamptz,
    dead_at           timestamptz,
    last_error        text,
    last_error_class  text        COLLATE "C",
    CONSTRAINT "{p}messages_pkey"                 PRIMARY KEY (seq),
    CONSTRAINT "{p}messages_message_id_key"       UNIQUE (message_id),
    CONSTRAINT "{p}messages_topic_check"          CHECK (char_length(topic) BETWEEN 1 AND 255),
    CONSTRAINT "{p}messages_ordering_key_check"   CHECK (char_length(ordering_key) <= 255),
    CONSTRAINT "{p}messages_type_check"           CHECK (char_length(type) BETWEEN 1 AND 255),
    CONSTRAINT "{p}messages_aggregate_type_check" CHECK (char_length(aggregate_type) <= 255),
    CONSTRAINT "{p}messages_aggregate_id_check"   CHECK (char_length(aggregate_id) <= 255),
    CONSTRAINT "{p}messages_correlation_id_check" CHECK (char_length(correlation_id) <= 255),
    CONSTRAINT "{p}messages_content_type_check"   CHECK (char_length(content_type) <= 255),
    -- strict: the lax mode would look into arrays and take {"a": ["b"]} for a string.
    CONSTRAINT "{p}messages_headers_check"        CHECK (jsonb_typeof(headers) = 'object'
        AND NOT jsonb_path_exists(headers, 'strict $.* ? (@.type() != "string")')),
    CONSTRAINT "{p}messages_payload_check"        CHECK (payload IS NULL OR payload_text IS NULL),
    CONSTRAINT "{p}messages_occurred_at_check"    CHECK (occurred_at >= '0001-01-01 00:00:00Z' AND occurred_at < '10000-01-01 00:00:00Z'),
    CONSTRAINT "{p}messages_state_check"          CHECK (state BETWEEN 0 AND 3)
) WITH (
    -- Rows live for seconds: what a claim walks over must be cleaned up long before a
    -- fifth of the table is dead.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_limit = 2000
);
-- One partial index per question, each with a literal predicate that the statements
-- repeat; without that the planner can't prove that it may use them. NULLS FIRST where
-- the primary key would give the same order: a plan that walks the primary key and
-- filters reads the whole table for the last lane. No seq is NULL or negative.
CREATE INDEX "{p}messages_ready"    ON {messages} (lane, seq NULLS FIRST) WHERE state = 0;
CREATE INDEX "{p}messages_due"      ON {messages} (available_at, seq) WHERE state = 1 AND paused_for IS NULL;
CREATE INDEX "{p}messages_parked"   ON {messages} (paused_for, seq) WHERE paused_for IS NOT NULL;
CREATE INDEX "{p}messages_detached" ON {messages} (lease_token) WHERE lease_token IS NOT NULL;
CREATE INDEX "{p}messages_held"     ON {messages} (ordering_key, seq) WHERE state = 2;
CREATE INDEX "{p}messages_aside"    ON {messages} (seq NULLS FIRST) WHERE state IN (1, 2) AND lane >= 0;
CREATE INDEX "{p}messages_dead"     ON {messages} (seq NULLS FIRST) WHERE state = 3;

-- What was settled, appended in the transaction that settles it. Nothing here can make
-- that transaction fail: the message id is not unique.
CREATE TABLE {archive} (
    seq               bigint      NOT NULL,
    message_id        uuid        NOT NULL,
    topic             text        COLLATE "C" NOT NULL,
    ordering_key      text        COLLATE "C",
    type              text        COLLATE "C" NOT NULL,
    aggregate_type    text        COLLATE "C",
    aggregate_id      text        COLLATE "C",
    aggregate_version bigint,
    correlation_id    text        COLLATE "C",
    content_type      text        COLLATE "C" NOT NULL,
    headers           jsonb,
    payload           bytea,
    payload_text      text,
    occurred_at       timestamptz NOT NULL,
    created_at        timestamptz NOT NULL,
    attempts          integer     NOT NULL,
    crashes           integer     NOT NULL,
    resends           integer     NOT NULL,
    first_failed_at   timestamptz,
    last_attempt_at   timestamptz,
    dead_at           timestamptz,
    last_error        text,
    last_error_class  text        COLLATE "C",
    outcome           text        COLLATE "C" NOT NULL,
    settled_at        timestamptz NOT NULL DEFAULT now(), -- one instant per transaction: then seq has the order
    settled_by        text        NOT NULL DEFAULT '',
    reason            text        NOT NULL DEFAULT '',
    content           boolean     NOT NULL, -- whether payload and headers were kept
    CONSTRAINT "{p}archive_pkey" PRIMARY KEY (settled_at, seq) INCLUDE (outcome),
    CONSTRAINT "{p}archive_outcome_check" CHECK (outcome IN ('published', 'discarded'))
);
CREATE INDEX "{p}archive_message_id" ON {archive} (message_id);

-- The unit of claim. Freeing a lane keeps its token: a lane is free when its lease is
-- over and it has handed out nothing. Small pages of many versions, nothing indexed that
-- changes, so that its updates stay on the page (HOT).
CREATE TABLE {lanes} (
    lane         smallint    NOT NULL,
    token        uuid,
    lease_until  timestamptz NOT NULL DEFAULT '-infinity',
    used         timestamptz NOT NULL DEFAULT '-infinity',
    worker       text        NOT NULL DEFAULT '',
    handed_seq   bigint[]    NOT NULL DEFAULT '{}',
    handed_stamp integer[]   NOT NULL DEFAULT '{}',
    handed_total integer     NOT NULL DEFAULT 0,
    CONSTRAINT "{p}lanes_pkey" PRIMARY KEY (lane)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
INSERT INTO {lanes} (lane) SELECT generate_series(0, 63);

-- One entry per row that holds back its key. seq 0 is smaller than every number: it
-- holds back the whole key while held rows are being released in chunks.
CREATE TABLE {blocks} (
    ordering_key text     COLLATE "C" NOT NULL,
    seq          bigint   NOT NULL,
    lane         smallint NOT NULL GENERATED ALWAYS AS ((hashtextextended(ordering_key, 0) & 63)::smallint) STORED, -- that of its row
    CONSTRAINT "{p}blocks_pkey" PRIMARY KEY (ordering_key, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500);
-- The second condition, true of every row, keeps these two for the statements that say
-- it: to look for one key's entries they are the wrong ones, though small at first.
CREATE INDEX "{p}blocks_draining" ON {blocks} (lane NULLS FIRST) WHERE seq = 0 AND lane >= 0;
CREATE INDEX "{p}blocks_oldest"   ON {blocks} (seq) WHERE seq > 0 AND lane >= 0;

-- Destinations that nothing is sent to now, for all relays on the table.
CREATE TABLE {pauses} (
    destination text        COLLATE "C" NOT NULL,
    by_name     text        NOT NULL,
    by_relay    boolean     NOT NULL,
    reason      text        NOT NULL,
    class       text        NOT NULL,
    since       timestamptz NOT NULL,
    probe_at    timestamptz NOT NULL,
    CONSTRAINT "{p}pauses_pkey" PRIMARY KEY (destination)
);

-- Who did what, and why.
CREATE TABLE {audit} (
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text        NOT NULL,
    by_relay    boolean     NOT NULL,
    action      text        NOT NULL,
    reason      text        NOT NULL,
    destination text        NOT NULL DEFAULT '',
    affected    integer     NOT NULL DEFAULT 0,
    message_ids uuid[]      NOT NULL DEFAULT '{}',
    CONSTRAINT "{p}audit_pkey" PRIMARY KEY (id)
);

-- One row: which schema this is, and what holds for the table as a whole.
CREATE TABLE {schema_} (
    one               boolean  NOT NULL DEFAULT true,
    version           integer  NOT NULL,
    min_client        integer  NOT NULL,
    retention         interval NOT NULL,
    archive           text     NOT NULL,
    discard_retention interval NOT NULL,
    CONSTRAINT "{p}schema_pkey"          PRIMARY KEY (one),
    CONSTRAINT "{p}schema_one_check"     CHECK (one),
    CONSTRAINT "{p}schema_archive_check" CHECK (archive IN ('full', 'metadata'))
);

-- What is waiting and what was settled, in one view.
CREATE VIEW {all} AS
SELECT seq, message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
       content_type, headers, payload, payload_text, occurred_at, created_at, attempts, crashes, resends,
       CASE state WHEN 0 THEN 'ready' WHEN 1 THEN 'waiting' WHEN 2 THEN 'held' ELSE 'dead' END AS status,
       last_error, last_error_class, dead_at, NULL::timestamptz AS settled_at
  FROM {messages}
UNION ALL
SELECT seq, message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
       content_type, headers, payload, payload_text, occurred_at, created_at, attempts, crashes, resends,
       outcome, last_error, last_error_class, dead_at, settled_at
  FROM {archive};
