-- What consumers have had the effect of. A repeat meets the primary key. The prefix is
-- a setting of its own, and several outboxes of one file may share the table: hence IF
-- NOT EXISTS.
CREATE TABLE IF NOT EXISTS {inbox} (
    consumer    TEXT    NOT NULL,
    message     TEXT    NOT NULL, -- the id's text, or a hash of what does not fit
    recorded_at INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (consumer, message),
    CONSTRAINT "{ip}messages_consumer_check" CHECK (typeof(consumer) = 'text' AND length(consumer) BETWEEN 1 AND 255),
    CONSTRAINT "{ip}messages_message_check"  CHECK (typeof(message) = 'text' AND length(message) BETWEEN 1 AND 255)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS "{ip}messages_recorded" ON {inbox} (recorded_at);
