CREATE TABLE fittings (
    topic TEXT PRIMARY KEY,
    document TEXT NOT NULL
);
CREATE TABLE capacity_model (
    broker TEXT PRIMARY KEY,
    document TEXT NOT NULL
);
