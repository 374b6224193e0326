"""The demo's publishers, the contract that fits them, and their token waits on paper."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distributor.api_fields import PublisherAsked
from srtm.limits.contract import Limit
from srtm.limits.queueing import BurstFit, Floats, smallest_burst, split_token_waits, token_waits
from srtm.load import LoadSettings
from srtm.load.placement import PlacedPublisher, settings_of
from srtm.load.schedule import build_schedule

TOPIC = "sensors"
PUBLISHERS = 100
RATE = 10.0  # messages/s of each publisher
HEADROOM = 1.1  # as SRTM section 6
PASS_AT_ONCE = 0.999
"""of the messages in one bucket: a tenth of those that an SLO at 0.99 allows may wait at all"""
GROUP = 2
"""Publishers that send at the same instants: pairs, so that two brokers can have one of each."""


def publishers() -> list[PublisherAsked]:
    """Poisson senders in rooms; whoever is in one room sends when the others there do."""
    return [
        PublisherAsked(id=f"s-{n:03}", key=f"room-{n // GROUP + 1:02}", rate=RATE)
        for n in range(PUBLISHERS)
    ]


def in_turn(addresses: Sequence[str]) -> list[PlacedPublisher]:
    """Everybody, without a placement."""
    return [
        PlacedPublisher(each.id, each.key, each.rate, addresses[n % len(addresses)])
        for n, each in enumerate(publishers())
    ]


def in_rooms(placed: Sequence[PlacedPublisher]) -> list[PlacedPublisher]:
    """Where they are, with the rooms that they send in."""
    rooms = {each.id: each.key for each in publishers()}
    return [replace(each, key=rooms[each.id]) for each in placed]


def settings_for(
    placed: Sequence[PlacedPublisher], seconds: float, topic: str = TOPIC, seed: int = 1
) -> LoadSettings:
    """Settings of a load with the same send times whoever is placed where."""
    values: dict[str, Any] = settings_of(placed)
    return LoadSettings(
        topic=topic,
        consume_addresses=values["publish_addresses"],
        channel="demo#ephemeral",
        duration_seconds=seconds,
        warmup_seconds=1.0,
        seed=seed,
        **values,
    )


def fit_contract(seconds: float, seed: int = 1) -> BurstFit:
    """(r, b) from the load itself, as SRTM section 6 does, above the SLO's own percentile."""
    send_times = _send_times(settings_for(in_turn(["h:1"]), seconds, seed=seed))
    return smallest_burst(send_times, HEADROOM, PASS_AT_ONCE)


def unsplit_waits(limit: Limit, seconds: float) -> Floats:
    """Token wait in seconds of each scheduled message in one bucket."""
    send_times = _send_times(settings_for(in_turn(["h:1"]), seconds))
    return token_waits(send_times, limit.rate, limit.burst)


def predicted_waits(settings: LoadSettings, shares: dict[str, tuple[float, float]]) -> Floats:
    """Token wait in seconds of each scheduled message in the sub-buckets; `shares`: address ->
    (r_l, b_l)."""
    assert settings.assignment is not None
    on_broker = np.array(settings.assignment)[build_schedule(settings).publishers]
    rates, bursts = zip(*(shares[each] for each in settings.publish_addresses), strict=True)
    return split_token_waits(_send_times(settings), on_broker, rates, bursts)


def _send_times(settings: LoadSettings) -> Floats:
    return build_schedule(settings).offsets_ns / 1e9
