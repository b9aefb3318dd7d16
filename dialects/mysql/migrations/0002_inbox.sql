-- What consumers have had the effect of. A repeat meets the primary key. The prefix is
-- a setting of its own, and several outboxes of one database may share the table.
CREATE TABLE IF NOT EXISTS {inbox} (
    consumer    VARCHAR(300) {bin} NOT NULL,
    message     VARCHAR(300) {bin} NOT NULL, -- the id's text, or a hash of what does not fit
    recorded_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer, message),
    KEY `{ip}messages_recorded` (recorded_at),
    CONSTRAINT `{ip}messages_consumer_check` CHECK (CHAR_LENGTH(consumer) BETWEEN 1 AND 255),
    CONSTRAINT `{ip}messages_message_check`  CHECK (CHAR_LENGTH(message) BETWEEN 1 AND 255)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;
