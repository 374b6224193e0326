"""One load on one arm and what it shows; arms that take turns."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from benchmarks.harness.arms import Node
from benchmarks.harness.session import Session
from benchmarks.harness.world import until
from srtm.text.errors import SrtmError

_END_SECONDS = 60.0


class Generator:
    """`srtm load FLAGS --json`, started at once."""

    def __init__(self, flags: Sequence[str], seconds: float) -> None:
        self._limit_seconds = seconds + _END_SECONDS
        self._process = subprocess.Popen(
            [sys.executable, "-m", "srtm", "load", "--json", *flags, f"--duration={seconds}s"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def result(self) -> dict[str, Any]:
        """Its document, once it has ended: exit code 1 tells of problems, and they are in it."""
        try:
            printed, said = self._process.communicate(timeout=self._limit_seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise SrtmError("the load generator did not end") from None
        try:
            document: dict[str, Any] = json.loads(printed)
        except ValueError:
            raise SrtmError(f"the load generator failed: {said.strip()}") from None
        document["settings"].pop("assignment", None)
        if len(document["brokers"]) == 1:
            del document["brokers"]
        return document

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def percentile_ms(latencies: dict[str, Any] | None, name: str) -> float:
    """A percentile of the generator's document; infinite where nothing came."""
    return float("inf") if latencies is None else float(latencies[f"{name}_ms"])


OVERHEAD_SECONDS = 1.2
"""of a trial beside its sending: starting Python, connecting, draining"""
_START_SECONDS = 20.0
_MARGIN_SECONDS = 0.2
"""Left out at both ends of a trial's window: when sending begins is seen by polling."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One load on one arm.

    document:      the generator's own (`srtm load --json`)
    cpu_us:        CPU of the arm's programs for each message, microseconds, in `window_seconds`
    waiting_grew:  backlog in nsqd at the end of that window minus at its beginning, messages
    """

    document: dict[str, Any]
    cpu_us: dict[str, float]
    window_seconds: float
    window_messages: int
    waiting_grew: int

    @property
    def acknowledged(self) -> float:
        """messages/s"""
        return float(self.document["rates_per_second"]["acknowledged"])

    @property
    def p99_ms(self) -> float:
        return percentile_ms(self.document["end_to_end_latency"], "p99")

    @property
    def lag_p99_ms(self) -> float:
        """How late the generator itself wrote: a part of every latency it shows."""
        return percentile_ms(self.document["send_lag"], "p99")

    @property
    def cpu_us_per_message(self) -> float:
        return sum(self.cpu_us.values())

    @property
    def generator_cpu_us(self) -> float:
        return float(self.document["generator"]["cpu_us_per_message"])


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a trial's sending and of its warm-up; rounds."""

    seconds: float
    warmup_seconds: float
    rounds: int


Round = Mapping[str, Trial]
"""by arm; one that there was no time for is missing"""
Figure = Callable[[Trial], float]


def take_turns(
    session: Session,
    what: str,
    number: int,
    arms: Sequence[str],
    seconds: float,
    run: Callable[[str], Trial],
) -> Round:
    """One round, the `number`-th: each arm runs once, another one first than in the round before,
    while there is time for its `seconds` and for what a trial takes beside them."""
    found: dict[str, Trial] = {}
    turn = number % len(arms)
    for arm in (*arms[turn:], *arms[:turn]):
        session.step(f"{what}: {arm}, round {number + 1}")
        if session.seconds_left > seconds + OVERHEAD_SECONDS:
            found[arm] = run(arm)
    return found


def of_arm(rounds: Sequence[Round], figure: Figure, arm: str) -> list[float]:
    return [figure(found[arm]) for found in rounds if arm in found]


def ratios(rounds: Sequence[Round], figure: Figure, arm: str, base: str) -> list[float]:
    """Round by round: the figure of one arm over that of the other."""
    return [
        figure(found[arm]) / figure(found[base])
        for found in rounds
        if arm in found and base in found and 0 < figure(found[base]) < inf
    ]


def gateway_cpu(found: Trial) -> float:
    """CPU of the gateway for a message, microseconds."""
    return found.cpu_us["gateway"]


def as_json(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    return [{arm: asdict(each) for arm, each in found.items()} for found in rounds]


def trial(
    node: Node,
    topic: str,
    flags: Sequence[str],
    *,
    seconds: float,
    warmup: float,
    channel: str = "",
    consume_from: str | None = None,
) -> Trial:
    """Load one arm, without what an earlier trial left in its topic and channel. Its CPU is read
    over the middle of the sending: connections and draining are left out. Raises SrtmError when
    the generator cannot run."""
    consumer = ["--no-consumer"]
    if consume_from is not None:
        consumer = [f"--consumer-nsqd-tcp-address={consume_from}"]
    node.empty(topic, channel)
    before = node.depth(topic)
    generator = Generator(
        [
            f"--topic={topic}",
            f"--nsqd-tcp-address={node.publish_to}",
            *consumer,
            f"--warmup={warmup}s",
            *([f"--channel={channel}"] if channel else []),
            *flags,
        ],
        seconds,
    )
    try:
        until(
            lambda: not generator.alive or node.depth(topic).received > before.received,
            f"{node.name}: a message arrives",
            _START_SECONDS,
            poll=0.05,
        )
        began = time.monotonic()
        time.sleep(max(warmup, _MARGIN_SECONDS))
        cpu, first, at = node.cpu_seconds(), node.depth(topic), time.monotonic()
        time.sleep(max(began + seconds - _MARGIN_SECONDS - time.monotonic(), 0.0))
        window = time.monotonic() - at
        later_cpu, last = node.cpu_seconds(), node.depth(topic)
        document = generator.result()
    except BaseException:
        generator.stop()
        raise
    messages = last.received - first.received
    spent = {name: (later_cpu[name] - cpu[name]) * 1e6 / max(messages, 1) for name in cpu}
    return Trial(document, spent, window, messages, last.waiting - first.waiting)
