"""Brokers that come where publishers have none, and go (SRTM section 4.2), on real servers.

A topic has more publishers than its one broker holds. `srtm broker scale` starts another, and all
publishers send; then the first one is said to hold them all, and the other is given up under load.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.bars import judge, judge_worst
from benchmarks.harness.report import Report, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.trial import Generator
from benchmarks.harness.world import (
    brokers_up,
    distributor_address,
    distributor_of,
    until,
    write_toml,
)
from distributor.remote import Remote
from srtm.deploy.scaling.file import ScaleFile
from srtm.deploy.scaling.launcher import Launcher
from srtm.deploy.scaling.run import Run
from srtm.deploy.up import Running

TOPIC = "sensors"
PUBLISHERS, RATE = 8, 50.0
HELD, MORE = 300.0, 3_000.0
"""messages/s that the first broker is said to hold: 6 of the 8, and later all"""
_ROUNDS, _QUICK_ROUNDS = 10, 1
_LEASE = "3s"
_SENDING_SECONDS = 20.0
_BEFORE_SECONDS = 2.0
"""of sending, before the other broker is given up"""
_LONGEST_SECONDS = 60.0
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Round:
    """One broker that came and went. Seconds: from the first look until its gateway was in contact,
    and until everybody had a broker; from the look that it was not needed at until nobody of it was
    left. most: brokers at a time; lost, twice: messages."""

    joined: float
    placed: float
    gone: float
    most: int
    sent: int
    lost: int
    twice: int


def run(session: Session) -> Report:
    rounds = _QUICK_ROUNDS if session.quick else _ROUNDS
    session.plan(rounds)
    found = []
    for number in range(rounds):
        session.step(f"a broker comes and goes ({number + 1})")
        found.append(_round(session.folder / f"r{number}"))
    return Report(
        settings={
            "publishers": PUBLISHERS,
            "messages_per_second": PUBLISHERS * RATE,
            "first_holds": HELD,
        },
        figures={"rounds": [asdict(each) for each in found]},
        bars=[
            judge("messages lost", [float(sum(each.lost for each in found))], at_most=0),
            judge("messages received twice", [float(sum(each.twice for each in found))], at_most=0),
            judge_worst("brokers at a time", [float(each.most) for each in found], at_most=2),
        ],
        tables=[
            tabulate(
                "a broker that came and went under load",
                found,
                ("in contact, s", lambda each: each.joined),
                ("all placed, s", lambda each: each.placed),
                ("given up and gone, s", lambda each: each.gone),
                ("sent", lambda each: f"{each.sent:,}"),
                ("lost", lambda each: each.lost),
                ("twice", lambda each: each.twice),
            )
        ],
        notes=["what the new broker holds is declared; measuring it within an SLO takes longer"],
    )


def _round(folder: Path) -> Round:
    folder.mkdir()
    with brokers_up(folder / "up", ["b1"], lease=_LEASE) as up:
        file = _scale_file(folder, up)
        try:
            return _played(up, Run(file, distributor_of(up)), Launcher(file))
        finally:
            _end_all(Launcher(file))


def _scale_file(folder: Path, up: Running) -> ScaleFile:
    scale = {"max": 2, "capacity": 1_000, "unneeded-for": "1ms", "data-path": str(folder / "x")}
    where = {"distributor-address": distributor_address(up)}
    return ScaleFile(write_toml(folder / "scale.toml", {"scale": scale, "elsewhere": where}))


def _played(up: Running, scaling: Run, launcher: Launcher) -> Round:
    remote = distributor_of(up)
    _holds(remote, HELD)
    remote.call("PUT", "topics", TOPIC, body={"rate": 2 * PUBLISHERS * RATE, "burst": 400.0})
    rows = [{"id": f"p{number}", "rate": RATE} for number in range(PUBLISHERS)]
    remote.call("POST", "topics", TOPIC, "publishers", body={"publishers": rows})
    remote.call("POST", "topics", TOPIC, "placements", body={"policy": "srtm"})
    most = 0

    def seconds(reached: Any) -> float:
        nonlocal most

        def look() -> bool:
            nonlocal most
            scaling.step()
            most = max(most, len(_brokers(remote)))
            return bool(reached())

        began = time.monotonic()
        until(look, "the brokers are as they are to be", _LONGEST_SECONDS, poll=_LOOK_SECONDS)
        return time.monotonic() - began

    joined = seconds(lambda: len(_brokers(remote)) == 2)
    placed = joined + seconds(lambda: _placed(remote) == PUBLISHERS)
    sending = Generator(
        [f"--topic={TOPIC}", f"--distributor-address={distributor_address(up)}"], _SENDING_SECONDS
    )
    try:
        time.sleep(_BEFORE_SECONDS)
        _holds(remote, MORE)
        gone = seconds(lambda: not launcher.running())
        counts = sending.result()["counts"]
    finally:
        sending.stop()
    return Round(joined, placed, gone, most, counts["sent"], counts["lost"], counts["duplicates"])


def _brokers(remote: Remote) -> list[dict[str, Any]]:
    """Those in contact."""
    found: list[dict[str, Any]] = remote.call("GET", "brokers")["brokers"]
    return [each for each in found if each["state"] != "lost"]


def _placed(remote: Remote) -> int:
    (topic,) = remote.call("GET", "topics")["topics"]
    return int(topic["placed"])


def _holds(remote: Remote, capacity: float) -> None:
    """What the first broker is taken to hold, messages/s."""
    (first,) = [each for each in _brokers(remote) if each["name"] == "b1"]
    reached = {key: first[key] for key in ("name", "tcp_address", "http_address")}
    remote.call("POST", "brokers", body=reached | {"capacity": capacity})


def _end_all(launcher: Launcher) -> None:
    for name in launcher.running():
        launcher.end(name, time.monotonic(), for_good=True)
    until(lambda: not launcher.running(), "the brokers that were started end", _LONGEST_SECONDS)
