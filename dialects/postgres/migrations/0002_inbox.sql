-- What consumers have had the effect of. A repeat meets the primary key. The prefix is
-- a setting of its own, and several outboxes of one schema may share the table: hence IF
-- NOT EXISTS.
CREATE TABLE IF NOT EXISTS {inbox} (
    consumer    text        COLLATE "C" NOT NULL,
    message     text        COLLATE "C" NOT NULL, -- the id's text, or a hash of what does not fit
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT "{ip}messages_pkey"           PRIMARY KEY (consumer, message),
    CONSTRAINT "{ip}messages_consumer_check" CHECK (char_length(consumer) BETWEEN 1 AND 255),
    CONSTRAINT "{ip}messages_message_check"  CHECK (char_length(message) BETWEEN 1 AND 255)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX IF NOT EXISTS "{ip}messages_recorded" ON {inbox} (recorded_at);
