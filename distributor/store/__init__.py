"""What the distributor keeps over a restart: SQLite by default, PostgreSQL by URL."""

from distributor.store.errors import StoreError, StoreLost
from distributor.store.open import open_store, open_to_read
from distributor.store.rows import (
    BrokerRow,
    FittingRow,
    GrantRow,
    LineageRow,
    ModelRow,
    PlacementRow,
    PublisherRow,
    Snapshot,
    TopicRow,
)
from distributor.store.statements import Statement
from distributor.store.store import Store, this_process

__all__ = [
    "BrokerRow",
    "FittingRow",
    "GrantRow",
    "LineageRow",
    "ModelRow",
    "PlacementRow",
    "PublisherRow",
    "Snapshot",
    "Statement",
    "Store",
    "StoreError",
    "StoreLost",
    "TopicRow",
    "open_store",
    "open_to_read",
    "this_process",
]
