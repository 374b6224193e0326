CREATE TABLE leader (
    term TEXT PRIMARY KEY,
    process TEXT NOT NULL
);
INSERT INTO leader (term, process) VALUES ('', 'nobody');
CREATE TABLE lineage (
    id TEXT PRIMARY KEY,
    secret TEXT NOT NULL,
    unsure BIGINT NOT NULL
);
CREATE TABLE lost_topics (
    topic TEXT PRIMARY KEY
);
ALTER TABLE brokers ADD COLUMN instance TEXT NOT NULL DEFAULT ''
