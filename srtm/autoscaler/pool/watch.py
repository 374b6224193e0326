"""`srtm autoscale watch` and `explain` of a pool; nothing is touched."""

from pathlib import Path
from typing import Any

from srtm.autoscaler.live.announced import Announced
from srtm.autoscaler.live.choice import Asked, make_pool_policy, watched
from srtm.autoscaler.live.learnt import Learnt
from srtm.autoscaler.live.observe import LiveConsumer, new_mu
from srtm.autoscaler.live.shown import UNKNOWN_MU, show_decisions, show_looks
from srtm.autoscaler.pool.reading import PoolReading
from srtm.autoscaler.pool.shares import pool_observation, share_count
from srtm.autoscaler.pool.source import source_of
from srtm.autoscaler.pool.state import read_state, state_path
from srtm.autoscaler.pool.world import PAUSED
from srtm.consumer.pool_file import PoolFile
from srtm.consumer.share_file import ShareFile
from srtm.text.errors import UnavailableError

_FIRST_SECONDS = 5.0


class PoolWatch:
    """Consumers are whoever subscribes to the channel."""

    def __init__(self, file: PoolFile | ShareFile, names: tuple[str, ...], where: Path) -> None:
        self._file = file
        group = file.group
        self._asked = Asked(
            names,
            group,
            lambda name, mu: make_pool_policy(name, group, mu),
            Announced(file.announced, where).now,
        )
        self._part = "broker" if isinstance(file, PoolFile) else "partition"
        self._source = source_of(file, where)
        self._sampler = self._source.sampler()

    def begin(self) -> None:
        """Raises UnavailableError."""
        self._sampler.start()
        if not self._sampler.wait_first(_FIRST_SECONDS):
            faults = self._sampler.faults
            self.close()
            raise UnavailableError(faults[0] if faults else self._source.nobody)
        self._sampler.read()

    def close(self) -> None:
        self._sampler.close()

    def look(self) -> dict[str, Any]:
        """What is seen now."""
        seen = self._sampler.read()
        assert seen is not None  # once there, what is known stays
        clients = sorted(seen.clients or {})
        consumers = tuple(LiveConsumer(name, mu=self._sampler.mu(name)) for name in clients)
        mean = self._sampler.mean_mu(len(consumers))
        mu = new_mu(consumers, mean or self._file.group.mu)
        notes = [*seen.reading.notes, *seen.faults]
        if seen.paused:
            notes.append(PAUSED)
        if mu is None:
            notes.append(UNKNOWN_MU)
        return {
            "part": self._part,
            f"{self._part}s": self._parts(seen),
            "consumers": [
                {
                    "consumer": each.id,
                    "state": str(each.state),
                    "mu": each.mu and round(each.mu, 3),
                }
                for each in consumers
            ],
            "waiting": seen.waiting,
            "deferred": seen.deferred,
            "served": seen.reading.served,
            "late": seen.reading.late,
            "staying_seconds": seen.reading.staying_seconds,
            "policies": self._decide(seen, consumers, mu) if mu else {},
            "notes": notes,
        }

    def _parts(self, seen: PoolReading) -> list[dict[str, Any]]:
        reading, faults = seen.reading, self._sampler.brokers()
        return [
            {
                self._part: name,
                "rate": round(each.rate, 3),
                "backlog": int(each.lag),
                "time_lag_seconds": round(reading.time_lags[each.id], 3),
                "fault": faults.get(name, ""),
            }
            for name, each in zip(seen.parts, reading.partitions, strict=True)
        ]

    def _decide(
        self, seen: PoolReading, consumers: tuple[LiveConsumer, ...], new_mu: float
    ) -> dict[str, Any]:
        shares = share_count(max(self._file.group.max, len(consumers)))
        startup = Learnt().startup
        shown = pool_observation(seen.reading, consumers, new_mu, shares, startup)
        found = self._asked.ask(shown)
        for each in found.values():
            if each["consumers"] == len(consumers):  # who has which share is passed over
                each["action"] = "none"
        return found


def watch_pool(
    file: PoolFile | ShareFile,
    names: tuple[str, ...],
    where: Path,
    count: int,
    as_json: bool,
) -> None:
    """Print one look an interval; count 0: until it is stopped."""
    watch = PoolWatch(file, watched(names, file.group, str(where)), where)
    watch.begin()
    show_looks(watch, file.group.interval, count, as_json)


def explain_pool(file: PoolFile | ShareFile, where: Path, last: int, as_json: bool) -> None:
    path = state_path(where, file.controller.state_folder)
    if not path.exists():
        raise UnavailableError(f"{path}: not there: no controller has run for this pool yet")
    found = list(read_state(path).get("decisions", {}).values())
    found.sort(key=lambda each: each.get("number", 0))
    show_decisions(found[-last:], as_json)
