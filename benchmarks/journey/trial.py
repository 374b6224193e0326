"""One load: a warm-up, the plan that it leads to, and the arms, each with a window that counts."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import Any

from benchmarks.harness.arms import Node
from benchmarks.harness.machine import load_average
from benchmarks.harness.world import child, until, write_toml
from benchmarks.journey.parts import Parts
from benchmarks.journey.publisher import publish
from benchmarks.journey.shapes import Shape
from benchmarks.journey.splits import Arm, equal, equal_target
from srtm.host.clock import NS
from srtm.http.client import get_json
from srtm.journey.causes import Leg
from srtm.kafka.server import kafka
from srtm.limits.slo import SLO
from srtm.text.address import free_addresses
from srtm.text.errors import Exit, UnavailableError

_BEGIN_SECONDS, _PLAN_SECONDS, _DRAIN_SECONDS = 30.0, 300.0, 60.0
_ASK_SECONDS = 20.0
"""for an answer: the machine is busy while consumers start"""
_SHOWN_SECONDS = 60
"""over which `srtm journey show` looks"""
_WARM_SEED = 1_000
"""apart from the seeds of what counts: a plan does not know the arrivals that come"""
_SRTM = (sys.executable, "-m", "srtm")


@dataclass(frozen=True, slots=True)
class Timing:
    """warm: of arrivals that the plan goes by; settle: from the begin of the load until the window,
    which counts. Seconds, but for the rounds."""

    warm: int
    settle: int
    window: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an arm in the window. slos: of its legs; seen: messages that were sent in it

    late:     share of these that took longer than the journey's target, or never came
    kept:     the age that the SLO's percentile of them had at most, seconds
    consumers: on average
    lost:     messages of the whole trial that no consumer was done with within a minute
    p99:      of those done in the window's last minute, seconds, by the client
    shown:    what `srtm journey show` says then
    """

    slos: dict[str, str]
    seen: int
    late: float
    kept: float
    consumers: float
    lost: int
    p99: float
    shown: dict[str, Any]

    @property
    def cost(self) -> float:
        """Broker- and replica-minutes for each minute."""
        return 1 + self.consumers


@dataclass(frozen=True, slots=True)
class Trial:
    """plan: what `srtm journey plan` said; checked: what `srtm journey check` did, of the SLOs that
    were set; load_averages: of the machine, as each window ended"""

    outcomes: dict[Arm, Outcome]
    plan: dict[str, Any]
    checked: list[str]
    load_averages: list[list[float]]


@dataclass(frozen=True, slots=True)
class _Started:
    """file: of the journeys, whose service is at `address`"""

    file: Path
    address: str
    arms: dict[Arm, Parts]


def play(shape: Shape, seed: int, node: Node, folder: Path, timing: Timing) -> Trial:
    """Raises SrtmError."""
    folder.mkdir()
    legs = [Leg.BROKER, *([Leg.BRIDGE] if shape.bridge else []), Leg.CONSUMER]
    with ExitStack() as stack:
        server = stack.enter_context(kafka(folder / "kafka")).address if shape.bridge else ""
        start = partial(_started, shape, node, server)
        plan = _plan(
            shape, seed, node, start(folder / "warm", {Arm.EQUAL: equal(shape.slo, legs)}), timing
        )
        slos = {
            Arm.PLAN: {Leg(leg): SLO.parse(slo) for leg, slo in plan["slos"].items()},
            Arm.EQUAL: equal(shape.slo, legs),
            Arm.EQUAL_TARGET: equal_target(shape.slo, legs),
        }
        turns = [[arm] for arm in Arm] if shape.in_turns else [list(Arm)]
        outcomes, checked, loads = dict[Arm, Outcome](), list[str](), list[list[float]]()
        for number, arms in enumerate(turns):
            chosen = {arm: slos[arm] for arm in arms}
            with start(folder / f"turn-{number}", chosen) as started:
                topics = [each.topic for each in started.arms.values()]
                with _sent(node, topics, shape, seed) as sending:
                    checked += _checked(started.file)
                    time.sleep(timing.settle)
                    window, consumers = _window(started.arms, timing.window)
                    shown = {arm: _told(started, arm) for arm in arms}
                    loads.append(load_average())
                    time.sleep(shape.slo.target_seconds)
                _wait(list(started.arms.values()), sending.result())
                for arm, parts in started.arms.items():
                    outcomes[arm] = _outcome(
                        parts.ages(),
                        shape.slo,
                        {str(leg): str(slo) for leg, slo in slos[arm].items()},
                        window,
                        consumers[arm],
                        sending.result(),
                        shown[arm],
                    )
        return Trial(outcomes, plan, checked, loads)


def _plan(
    shape: Shape, seed: int, node: Node, start: AbstractContextManager[_Started], timing: Timing
) -> dict[str, Any]:
    """What `srtm journey plan` says after a warm-up. Raises UnavailableError where no split keeps
    the SLO, either."""
    with start as started:
        [(arm, parts)] = started.arms.items()
        with _sent(node, [parts.topic], shape, seed + _WARM_SEED):
            until(
                lambda: len(_told(started, arm).get("rates", ())) >= timing.warm,
                lambda: f"arrivals are known: {_told(started, arm).get('fault')}",
                timing.warm + _BEGIN_SECONDS,
            )
            startup = parts.startup_seconds()
            flags = [] if startup is None else [f"--startup={startup:.3f}s"]
            command = [*_SRTM, "journey", "plan", str(started.file), "--json", *flags]
            [found] = json.loads(_printed(command))
    if "slos" not in found:
        raise UnavailableError(f"srtm journey plan finds none: {found}")
    return {**found, "startup_seconds": startup}


@contextmanager
def _started(
    shape: Shape, node: Node, server: str, folder: Path, slos: Mapping[Arm, Mapping[Leg, SLO]]
) -> Iterator[_Started]:
    """The parts of these arms, and the service that measures them, for the time of a `with` block.
    server: of Kafka"""
    folder.mkdir()
    own, *others = map(str, free_addresses(1 + 2 * len(slos)))
    doors = iter(others)
    with ExitStack() as stack:
        arms = {}
        for arm in slos:
            topic = f"{folder.parent.name}-{folder.name}-{arm}"
            parts = Parts(folder / arm, node, topic, server, own, next(doors), next(doors))
            arms[arm] = stack.enter_context(parts)
            parts.write(slos[arm])
        rows = [{**each.journey, "slo": str(shape.slo)} for each in arms.values()]
        tables = {"journeys": {"http-address": own}, "journey": rows}
        file = write_toml(folder / "journeys.toml", tables)
        run = (*_SRTM, "journey", "run", str(file))
        stack.enter_context(child(run, folder / "journey.log", 5))
        for each in arms.values():
            each.begin()
        for each in arms.values():
            each.wait()
        yield _Started(file, own, arms)


@contextmanager
def _sent(node: Node, topics: Sequence[str], shape: Shape, seed: int) -> Iterator[Future[int]]:
    """Send for the time of a `with` block; how many each topic got is known after it."""
    over = Event()
    times = takewhile(lambda _: not over.is_set(), shape.times(seed))
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(publish, node.publish_to, topics, times)
        finally:
            over.set()


def _told(started: _Started, arm: Arm) -> dict[str, Any]:
    """What `srtm journey show --json` prints of it; only a fault where nothing is told."""
    try:
        found = get_json(started.address, "/stats", timeout_seconds=_ASK_SECONDS)["journeys"]
    except UnavailableError as error:
        return {"fault": str(error)}
    topic = started.arms[arm].topic
    told: dict[str, Any] = next(each for each in found if each["journey"] == topic)
    return told


def _checked(file: Path) -> list[str]:
    """A line for each arm at least; one that says FAULT has an exit code of its own."""
    command = [*_SRTM, "journey", "check", str(file)]
    return _printed(command, (Exit.OK, Exit.UNAVAILABLE)).splitlines()


def _printed(command: Sequence[str], codes: Sequence[int] = (Exit.OK,)) -> str:
    """Raises UnavailableError."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_PLAN_SECONDS, check=False
    )
    if done.returncode not in codes:
        raise UnavailableError(f"{command[2:5]}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def _window(arms: Mapping[Arm, Parts], seconds: int) -> tuple[tuple[int, int], dict[Arm, float]]:
    """From when to when it lasts, ns since 1970, and the consumers of each arm on average."""
    begun, before = time.time_ns(), {arm: each.replica_seconds() for arm, each in arms.items()}
    time.sleep(seconds)
    ended, after = time.time_ns(), {arm: each.replica_seconds() for arm, each in arms.items()}
    whole = (ended - begun) / NS
    return (begun, ended), {arm: (after[arm] - before[arm]) / whole for arm in arms}


def _wait(arms: Sequence[Parts], count: int) -> None:
    """Until consumers are done with as many messages in every arm, or a minute has passed."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    while any(len(each.ages()) < count for each in arms) and time.monotonic() < deadline:
        time.sleep(0.5)


def _outcome(
    ages: Mapping[int, int],
    slo: SLO,
    slos: dict[str, str],
    window: tuple[int, int],
    consumers: float,
    count: int,
    shown: dict[str, Any],
) -> Outcome:
    """count: of messages that were sent in the whole trial. One that never came may be of the
    window, so it counts as late there."""
    begun, ended = window
    lost = count - len(ages)
    seen = [(done - sent) / NS for sent, done in ages.items() if begun <= sent < ended]
    seen += [math.inf] * lost
    last = [
        (done - sent) / NS
        for sent, done in ages.items()
        if ended - _SHOWN_SECONDS * NS <= done < ended
    ]
    return Outcome(
        slos,
        len(seen),
        sum(each > slo.target_seconds for each in seen) / max(1, len(seen)),
        _quantile(seen, slo.percentile),
        consumers,
        lost,
        _quantile(last, 0.99),
        {
            name: shown[name]
            for name in ("p50_seconds", "p99_seconds", "late_share", "promised_share", "causes")
        },
    )


def _quantile(values: Sequence[float], share: float) -> float:
    """By nearest rank."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else math.nan
