"""Publish through the gateway that the Load Distributor names; subscribe with low latency."""

from srtm.client.errors import NotSent, OutcomeUnknown, Refused
from srtm.client.features import features
from srtm.client.publisher import Publisher
from srtm.client.subscriber import subscribe
from srtm.client.sync import SyncPublisher

__all__ = [
    "NotSent",
    "OutcomeUnknown",
    "Publisher",
    "Refused",
    "SyncPublisher",
    "features",
    "subscribe",
]
