"""The columns of a trace. A row is a run: what one read of one publisher brought for one topic; of
a run with several outcomes there is a row for each.

time:      arrival, ns since 1970 by the gateway's host
topic, publisher, broker: names; a publisher is its registered id, else CLIENT_ID@IP, by HTTP @IP
messages:  of the run
bytes:     of their bodies
wait:      token wait of the last of them, ns; null where it was not admitted
outcome:   admitted (it has its tokens), rejected (refused by the limit, or as nsqd was away) or
           closed (its publisher's connection ended before)
"""

import pyarrow as pa

from srtm.traces.version import VERSION, VERSION_KEY

SCHEMA = pa.schema(
    [
        pa.field("time", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("publisher", pa.string(), nullable=False),
        pa.field("broker", pa.string(), nullable=False),
        pa.field("messages", pa.int32(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("wait", pa.int64()),
        pa.field("outcome", pa.string(), nullable=False),
    ],
    metadata={VERSION_KEY: str(VERSION)},
)
WITH_DICTIONARIES = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string()))
        if field.type == pa.string()
        else field
        for field in SCHEMA
    ],
    metadata=SCHEMA.metadata,
)
"""The schema of rows in memory, with dictionaries for texts. The file is the same."""
