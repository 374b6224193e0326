CREATE TABLE brokers (
    name TEXT PRIMARY KEY,
    tcp_address TEXT NOT NULL,
    http_address TEXT NOT NULL,
    capacity DOUBLE PRECISION NOT NULL,
    draining BIGINT NOT NULL
);
CREATE TABLE topics (
    topic TEXT PRIMARY KEY,
    contract TEXT NOT NULL,
    keys TEXT
);
CREATE TABLE publishers (
    topic TEXT NOT NULL,
    id TEXT NOT NULL,
    key TEXT,
    rate DOUBLE PRECISION NOT NULL,
    broker TEXT,
    PRIMARY KEY (topic, id)
);
CREATE TABLE placements (
    topic TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    policy TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (topic, epoch)
);
CREATE TABLE grants (
    topic TEXT NOT NULL,
    broker TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    rate DOUBLE PRECISION NOT NULL,
    burst DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (topic, broker, epoch)
);
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
