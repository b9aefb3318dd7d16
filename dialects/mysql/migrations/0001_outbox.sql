-- What still has to go, and what is dead. The table is a public contract: any program
-- enqueues with one INSERT of the columns it has. Instants are UTC. Text compares byte
-- by byte and with its trailing blanks; a column is wider than what may be in it, so
-- that a session without strict mode meets the CHECK where it would be cut silently.
-- What stands in comments with an exclamation mark is read by MySQL or MariaDB alone.
CREATE TABLE IF NOT EXISTS {messages} (
    seq               BIGINT       NOT NULL AUTO_INCREMENT,
    message_id        BINARY(16)   NOT NULL DEFAULT (/*!80013 UUID_TO_BIN(UUID()) */ /*M!100600 UNHEX(REPLACE(UUID(), '-', '')) */),
    topic             VARCHAR(300) {bin} NOT NULL,
    ordering_key      VARCHAR(300) {bin},
    type              VARCHAR(300) {bin} NOT NULL,
    aggregate_type    VARCHAR(300) {bin},
    aggregate_id      VARCHAR(300) {bin},
    aggregate_version BIGINT,
    correlation_id    VARCHAR(300) {bin},
    content_type      VARCHAR(300) {bin} NOT NULL DEFAULT 'application/json',
    headers           JSON         NOT NULL DEFAULT (JSON_OBJECT()),
    payload           LONGBLOB,
    payload_text      LONGTEXT     CHARACTER SET utf8mb4,
    occurred_at       DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    available_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    created_at        DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- Rows of one key share a lane; rows without a key spread by their id, for the number
    -- is not known yet when this is computed.
    lane              SMALLINT     GENERATED ALWAYS AS (CASE WHEN ordering_key <> '' THEN CRC32(ordering_key) ELSE CRC32(message_id) END & 63) STORED,
    state             SMALLINT     NOT NULL DEFAULT 0, -- 0 ready, 1 waiting, 2 held, 3 dead
    attempts          INT          NOT NULL DEFAULT 0,
    crashes           INT          NOT NULL DEFAULT 0,
    resends           INT          NOT NULL DEFAULT 0,
    stamp             INT          NOT NULL DEFAULT 0,
    company           INT          NOT NULL DEFAULT 0,
    lease_token       BINARY(16),
    paused_for        VARCHAR(600) {bin},
    first_failed_at   DATETIME(6),
    last_attempt_at   DATETIME(6),
    dead_at           DATETIME(6),
    last_error        TEXT         CHARACTER SET utf8mb4,
    last_error_class  VARCHAR(64)  {bin},
    PRIMARY KEY (seq),
    UNIQUE KEY `{p}messages_message_id` (message_id),
    KEY `{p}messages_ready`  (state, lane, seq),
    KEY `{p}messages_due`    (state, available_at, seq),
    KEY `{p}messages_held`   (state, ordering_key, seq),
    KEY `{p}messages_state`  (state, seq),
    KEY `{p}messages_parked` (paused_for, seq),
    CONSTRAINT `{p}messages_topic_check`          CHECK (CHAR_LENGTH(topic) BETWEEN 1 AND 255),
    CONSTRAINT `{p}messages_ordering_key_check`   CHECK (CHAR_LENGTH(ordering_key) <= 255),
    CONSTRAINT `{p}messages_type_check`           CHECK (CHAR_LENGTH(type) BETWEEN 1 AND 255),
    CONSTRAINT `{p}messages_aggregate_type_check` CHECK (CHAR_LENGTH(aggregate_type) <= 255),
    CONSTRAINT `{p}messages_aggregate_id_check`   CHECK (CHAR_LENGTH(aggregate_id) <= 255),
    CONSTRAINT `{p}messages_correlation_id_check` CHECK (CHAR_LENGTH(correlation_id) <= 255),
    CONSTRAINT `{p}messages_content_type_check`   CHECK (CHAR_LENGTH(content_type) BETWEEN 1 AND 255),
    -- MariaDB can't say before 11.1 that every value is a string; a row with another
    -- value is found when it is claimed.
    CONSTRAINT `{p}messages_headers_check`        CHECK (JSON_TYPE(headers) = 'OBJECT'
        /*!80017 AND JSON_SCHEMA_VALID('{"additionalProperties": {"type": "string"}}', headers) */),
    CONSTRAINT `{p}messages_payload_check`        CHECK (payload IS NULL OR payload_text IS NULL),
    CONSTRAINT `{p}messages_occurred_at_check`    CHECK (occurred_at >= '0001-01-01 00:00:00'),
    CONSTRAINT `{p}messages_available_at_check`   CHECK (available_at >= '0001-01-01 00:00:00'),
    CONSTRAINT `{p}messages_state_check`          CHECK (state BETWEEN 0 AND 3)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What was settled, appended in the transaction that settles it. Nothing here can make
-- that transaction fail: neither the message id nor anything else but id is unique.
CREATE TABLE IF NOT EXISTS {archive} (
    id                BIGINT       NOT NULL AUTO_INCREMENT,
    seq               BIGINT       NOT NULL,
    message_id        BINARY(16)   NOT NULL,
    topic             VARCHAR(300) {bin} NOT NULL,
    ordering_key      VARCHAR(300) {bin},
    type              VARCHAR(300) {bin} NOT NULL,
    aggregate_type    VARCHAR(300) {bin},
    aggregate_id      VARCHAR(300) {bin},
    aggregate_version BIGINT,
    correlation_id    VARCHAR(300) {bin},
    content_type      VARCHAR(300) {bin} NOT NULL,
    headers           JSON,
    payload           LONGBLOB,
    payload_text      LONGTEXT     CHARACTER SET utf8mb4,
    occurred_at       DATETIME(6)  NOT NULL,
    created_at        DATETIME(6)  NOT NULL,
    attempts          INT          NOT NULL,
    crashes           INT          NOT NULL,
    resends           INT          NOT NULL,
    first_failed_at   DATETIME(6),
    last_attempt_at   DATETIME(6),
    dead_at           DATETIME(6),
    last_error        TEXT         CHARACTER SET utf8mb4,
    last_error_class  VARCHAR(64)  {bin},
    outcome           VARCHAR(16)  {bin} NOT NULL,
    settled_at        DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    settled_by        VARCHAR(300) {bin} NOT NULL DEFAULT '',
    reason            TEXT         CHARACTER SET utf8mb4,
    content           TINYINT      NOT NULL, -- whether payload and headers were kept
    PRIMARY KEY (id),
    KEY `{p}archive_settled`    (settled_at, seq, id),
    KEY `{p}archive_message_id` (message_id, settled_at, seq, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- The unit of claim. Freeing a lane keeps its token: a lane is free when its lease is
-- over and it has handed out nothing.
CREATE TABLE IF NOT EXISTS {lanes} (
    lane         SMALLINT     NOT NULL,
    token        BINARY(16)   NOT NULL DEFAULT '',
    lease_until  DATETIME(6)  NOT NULL DEFAULT '1000-01-01 00:00:00',
    used         DATETIME(6)  NOT NULL DEFAULT '1000-01-01 00:00:00',
    worker       VARCHAR(300) {bin} NOT NULL DEFAULT '',
    handed       MEDIUMTEXT   CHARACTER SET ascii, -- [[seq, stamp], …]
    handed_total INT          NOT NULL DEFAULT 0,
    PRIMARY KEY (lane)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
INSERT INTO {lanes} (lane) SELECT n.n FROM (WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 63) SELECT n FROM n) n
    ON DUPLICATE KEY UPDATE lane = {lanes}.lane;

-- One entry per row that holds back its key. seq 0 is smaller than every number: it
-- holds back the whole key while held rows are being released in chunks.
CREATE TABLE IF NOT EXISTS {blocks} (
    ordering_key VARCHAR(300) {bin} NOT NULL,
    seq          BIGINT       NOT NULL,
    lane         SMALLINT     NOT NULL,
    PRIMARY KEY (ordering_key, seq),
    KEY `{p}blocks_seq` (seq, lane)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Destinations that nothing is sent to now, for all relays on the table.
CREATE TABLE IF NOT EXISTS {pauses} (
    destination VARCHAR(600) {bin} NOT NULL,
    by_name     VARCHAR(600) {bin} NOT NULL,
    by_relay    TINYINT      NOT NULL,
    reason      TEXT         CHARACTER SET utf8mb4 NOT NULL,
    class       VARCHAR(64)  {bin} NOT NULL,
    since       DATETIME(6)  NOT NULL,
    probe_at    DATETIME(6)  NOT NULL,
    PRIMARY KEY (destination)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Who did what, and why.
CREATE TABLE IF NOT EXISTS {audit} (
    id          BIGINT       NOT NULL AUTO_INCREMENT,
    at          DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    actor       VARCHAR(600) {bin} NOT NULL,
    by_relay    TINYINT      NOT NULL,
    action      VARCHAR(64)  {bin} NOT NULL,
    reason      TEXT         CHARACTER SET utf8mb4 NOT NULL,
    destination VARCHAR(600) {bin} NOT NULL DEFAULT '',
    affected    INT          NOT NULL DEFAULT 0,
    message_ids MEDIUMTEXT   CHARACTER SET ascii,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- One row: which schema this is, and what holds for the table as a whole. Times are
-- microseconds. It is the last to be filled: a step that was cut short is done again.
CREATE TABLE IF NOT EXISTS {schema_} (
    one               TINYINT     NOT NULL DEFAULT 1,
    version           INT         NOT NULL,
    min_client        INT         NOT NULL,
    retention         BIGINT      NOT NULL,
    archive           VARCHAR(16) {bin} NOT NULL,
    discard_retention BIGINT      NOT NULL,
    PRIMARY KEY (one),
    CONSTRAINT `{p}schema_one_check`     CHECK (one = 1),
    CONSTRAINT `{p}schema_archive_check` CHECK (archive IN ('full', 'metadata'))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- What is waiting and what was settled, in one view.
CREATE OR REPLACE VIEW {all} AS
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
