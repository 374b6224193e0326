"""Rounds of load on a broker through its gateway, on a topic that is there only meanwhile."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from distributor.capacity.search import Found, Outcome, Search
from srtm.host.clock import NS, monotonic_ns
from srtm.http.nsqd import NsqdDoor, stats
from srtm.limits.slo import SLO
from srtm.load import LoadSettings, run_load
from srtm.load.result import LoadResult
from srtm.load.runner import Progress
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import sub
from srtm.text.errors import UnavailableError, UsageError

WARMUP_PART = 0.1
"""The warm-up before a round, as a part of its length: connections, the new topic and the runtimes
settle."""
_OWN_PART = 0.5
"""The part of the SLO's target by which the generator itself may be late: a round that fails with a
later one proves nothing of the broker."""
_SLIPPED_PART = 0.02
"""The part of a round's length by which the generator may be late: a later one has sent at a lower
rate than it was to."""
_CLEAR_SECONDS = 30.0
"""Seconds to clear what a gateway took of an overload (100,000 messages by default), even at a slow
broker."""
_PLAIN = "a capacity is measured in plain text: start it without --tls-required for the time"


@dataclass(frozen=True, slots=True)
class Round:
    """One rate, measured once. Latency is the broker's: from the actual time of sending to receipt
    by a consumer that is always ready. Of all messages; one never received is later than any.

    rate:     messages/s that were to be sent
    achieved: messages/s with an OK
    latency:  seconds, at the SLO's percentile; None: more than the others never came
    late:     share of messages over the SLO's target
    send_lag: seconds, at the same percentile: how late the generator itself sent
    """

    rate: int
    achieved: float
    latency: float | None
    late: float
    send_lag: float
    outcome: Outcome

    def document(self) -> dict[str, Any]:
        return asdict(self)


def judge(result: LoadResult, slo: SLO, rate: int) -> Round:
    """What one run shows of the broker."""
    times = result.since_sent_ns
    late, latency = 1.0, None
    if len(times):
        late = float(np.mean(times > slo.target_seconds * NS))
        at = int(np.quantile(times, slo.percentile, method="inverted_cdf"))
        latency = None if at == np.iinfo(np.int64).max else at / NS
    lag = result.send_lag.percentile_ms(100 * slo.percentile) / 1e3
    met = latency is not None and slo.met_by(latency)
    seconds = result.settings.seconds - result.settings.warmup_seconds
    if lag > (_SLIPPED_PART * seconds if met else _OWN_PART * slo.target_seconds):
        outcome = Outcome.BEHIND
    else:
        outcome = Outcome.HELD if met else Outcome.LATE
    return Round(rate, result.total.rates.acknowledged, latency, late, lag, outcome)


class Rounds:
    """Use as a context: at its end the topic is gone, whatever happened.

    settings: how each round loads the broker; rate and seed change from round to round
    """

    def __init__(self, settings: LoadSettings, http_address: str, slo: SLO) -> None:
        self._settings = settings
        self._http_address = http_address
        self._slo = slo
        self._count = 0

    def __enter__(self) -> "Rounds":
        self._began_ns = monotonic_ns()
        self._offered = self._offered_to_others()
        return self

    @property
    def declared_capacity(self) -> int:
        """messages/s that the gateway itself registers with; 0: it leaves that to others."""
        distributor = self._stats()["srtm"]["distributor"]
        return int(distributor.get("capacity", 0)) if distributor else 0

    def __exit__(self, *_: object) -> None:
        self._clear()

    def measure(self, rate: int, on_progress: Callable[[Progress], None] | None) -> Round:
        """One round, from an idle broker. Raises UsageError where the topic has a contract,
        UnavailableError where the broker is not there, KeyboardInterrupt."""
        self._count += 1
        asked = replace(
            self._settings,
            rate_per_second=rate / self._settings.publishers,
            seed=self._count,
        )
        result = run_load(asked, on_progress)
        if result.account.interrupted:
            raise KeyboardInterrupt
        ours = self._stats(asked.topic)["srtm"]["topics"]
        if any("rate" in each for each in ours):
            raise UsageError(
                f"the gateway at {self._http_address} limits every topic (--default-limit), so "
                "that no load shows what the broker holds: start it without for the time"
            )
        self._clear()
        return judge(result, self._slo, rate)

    def others(self) -> tuple[float, list[str]]:
        """messages/s that other topics had since the beginning, and their names."""
        now = self._offered_to_others()
        more = {name: count - self._offered.get(name, 0) for name, count in now.items()}
        names = [name for name in sorted(more) if more[name] > 0]
        seconds = (monotonic_ns() - self._began_ns) / NS
        return sum(more[name] for name in names) / seconds, names

    def _offered_to_others(self) -> dict[str, int]:
        topics = self._stats()["srtm"]["topics"]
        return {each["topic"]: each["offered"] for each in topics if not self._is_ours(each)}

    def _is_ours(self, entry: dict[str, Any]) -> bool:
        return bool(entry["topic"] == self._settings.topic)

    def _clear(self) -> None:
        """Wait until the gateway has nothing of the topic left and nsqd has dropped it.

        An ephemeral topic goes with its last channel. What the gateway still held when the consumer
        left makes it anew, without a channel: so one comes and goes.
        """
        topic, address = self._settings.topic, self._settings.publish_addresses[0]
        until = time.monotonic() + _CLEAR_SECONDS
        while time.monotonic() < until:
            found = self._stats(topic)
            backlog = sum(each["backlog_bytes"] for each in found["srtm"]["topics"])
            if not backlog and not found["topics"]:
                return
            if not backlog:
                with Blocking(address, {"client_id": "srtm-capacity"}) as link:
                    link.identify().ask(sub(topic.encode(), self._settings.channel.encode()))
            time.sleep(0.05)
        raise UnavailableError(
            f"the gateway at {self._http_address} still has topic {topic} after "
            f"{_CLEAR_SECONDS:g} s: is its nsqd there?"
        )

    def _stats(self, topic: str = "") -> dict[str, Any]:
        document = stats(NsqdDoor(self._http_address, remedy=_PLAIN), topic)
        if "srtm" not in document:
            raise UsageError(
                f"{self._http_address} is not the HTTP address of a gateway; a plain nsqd cannot "
                "be held to a contract, so put a gateway before it first"
            )
        return document


def settings_for(
    tcp_address: str, round_seconds: float, publishers: int, **same: Any
) -> LoadSettings:
    """The load of each round. Raises UsageError."""
    warmup = WARMUP_PART * round_seconds
    return LoadSettings(
        topic=f"srtm-capacity-{os.urandom(4).hex()}#ephemeral",
        channel="load#ephemeral",
        publish_addresses=(tcp_address,),
        consume_addresses=(tcp_address,),
        publishers=publishers,
        rate_per_second=1.0,
        duration_seconds=round_seconds + warmup,
        warmup_seconds=warmup,
        **same,
    )


def searched(search: Search, measure: Callable[[int], Round]) -> tuple[Found, list[Round]]:
    """What the search finds, and the rounds that it asked for, in their order. measure: a round at
    so many messages/s"""
    done: list[Round] = []
    while asked := search.next_rate([(each.rate, each.outcome) for each in done]):
        done.append(measure(asked))
    return search.found([(each.rate, each.outcome) for each in done]), done
