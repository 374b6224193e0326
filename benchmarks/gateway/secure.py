"""What TLS and compression cost: the gateway against nsqd alone, each with the same layers.

nsqd alone does TLS, snappy and deflate itself; before the other one the gateway does, and speaks
plain text with it over a unix socket. Certificates are EC P-256. Trials take turns: each layer on
both arms, then the next round. CPU is that of gateway and nsqd in the middle of the sending, so
handshakes are not in it; what a layer adds is the difference to plain text of the same round.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Picture, Report, number, span, table
from benchmarks.harness.session import Session
from benchmarks.harness.trial import (
    Round,
    Timing,
    Trial,
    as_json,
    of_arm,
    ratios,
    take_turns,
    trial,
)
from srtm.certs.authority import ca_file, create, issue
from srtm.certs.names import Names
from srtm.limits.contract import Contract

TOPIC = "bench"
CONTRACT = Contract(topic=TOPIC, rate=1e6, burst=1e6)
ARMS = ("alone", "behind")
SHAPES = {
    "1,000 connections x 1": ("--publishers=1000", "--max-speed", "--outstanding=1"),
    "50 connections x 20": ("--publishers=50", "--max-speed", "--outstanding=20"),
}
LAYERS = ("plain", "tls", "snappy", "deflate")
LEAST = {"1,000 connections x 1": 1.0, "50 connections x 20": 2.5}
"""throughput through TLS, over nsqd's through TLS"""
ADDED_US = {
    ("tls", "1,000 connections x 1"): 4.0,
    ("tls", "50 connections x 20"): 0.5,
    ("snappy", "1,000 connections x 1"): 1.5,
    ("snappy", "50 connections x 20"): 1.5,
}
"""CPU of a message, microseconds, at most"""
_REPEATS = 2


FULL = Timing(5.0, 1.0, 3)
QUICK = Timing(1.0, 0.3, 1)

Trials = dict[tuple[str, str], list[Round]]
"""rounds by shape and layer"""


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    session.plan(timing.rounds * len(SHAPES) * len(LAYERS) * len(ARMS))
    folder = session.folder / "pki"
    now = datetime.datetime.now(datetime.UTC)
    create(folder, now)
    cert, key = issue(folder, "broker", Names.of("broker", (), ("127.0.0.1",)), 1, now)
    tls = (f"--tls-cert={cert}", f"--tls-key={key}", "--https-address=")
    trials: Trials = {(shape, layer): [] for shape in SHAPES for layer in LAYERS}
    with nodes(
        session.folder,
        {"alone": None, "behind": [CONTRACT]},
        {"behind": tls},
        nsqd_flags={"alone": tls},
    ) as started:
        for node in started.values():
            node.create(TOPIC)
        for round_number in range(timing.rounds):
            for (shape, layer), rounds in trials.items():
                flags = [*SHAPES[shape], *_flags(layer, ca_file(folder))]
                rounds.append(
                    take_turns(
                        session,
                        f"{shape}, {layer}",
                        round_number,
                        ARMS,
                        timing.seconds,
                        partial(_trial, started, flags, timing),
                    )
                )
    return Report(
        settings={"load_flags": SHAPES, "layers": LAYERS, **asdict(timing)},
        figures={f"{shape}, {layer}": as_json(rounds) for (shape, layer), rounds in trials.items()},
        bars=bars(trials, session.quick),
        tables=[_table(trials)],
        notes=[],
        draw=lambda figure: _draw(figure, trials),
    )


def _trial(started: Mapping[str, Node], flags: Sequence[str], timing: Timing, arm: str) -> Trial:
    return trial(started[arm], TOPIC, flags, seconds=timing.seconds, warmup=timing.warmup_seconds)


def _flags(layer: str, authority: Path) -> tuple[str, ...]:
    if layer == "tls":
        return "--tls-v1", f"--tls-root-ca-file={authority}"
    return () if layer == "plain" else (f"--{layer}",)


def _acknowledged(found: Trial) -> float:
    return found.acknowledged


def _cpu(found: Trial) -> float:
    return found.cpu_us_per_message


def added_us(trials: Trials, shape: str, layer: str, arm: str) -> list[float]:
    """Round by round: what the layer adds to the CPU of a message."""
    pairs = zip(trials[shape, layer], trials[shape, "plain"], strict=True)
    return [
        found[arm].cpu_us_per_message - plain[arm].cpu_us_per_message
        for found, plain in pairs
        if arm in found and arm in plain
    ]


def bars(trials: Trials, quick: bool) -> list[Bar]:
    return [
        *(
            judge(
                f"throughput through TLS, {shape}",
                ratios(trials[shape, "tls"], _acknowledged, "behind", "alone"),
                at_least=least,
                quick=quick,
                repeats=_REPEATS,
            )
            for shape, least in LEAST.items()
        ),
        *(
            judge(
                f"CPU that {layer} adds to a message, us, {shape}",
                added_us(trials, shape, layer, "behind"),
                at_most=most,
                quick=quick,
                repeats=_REPEATS,
            )
            for (layer, shape), most in ADDED_US.items()
        ),
    ]


def _table(trials: Trials) -> Table:
    made = table(
        "TLS and compression",
        "load",
        "layer",
        "figure",
        "nsqd alone",
        "with gateway",
        "ratio",
        "range",
    )
    for (shape, layer), rounds in trials.items():
        for name, figure in (("acknowledged/s", _acknowledged), ("CPU, us/msg", _cpu)):
            values = ratios(rounds, figure, "behind", "alone")
            if values:
                made.add_row(
                    shape if (layer, figure) == (LAYERS[0], _acknowledged) else "",
                    layer if figure is _acknowledged else "",
                    name,
                    number(median(of_arm(rounds, figure, "alone"))),
                    number(median(of_arm(rounds, figure, "behind"))),
                    number(median(values)),
                    span(values),
                )
    return made


def _draw(figure: Picture, trials: Trials) -> None:
    """Throughput by layer."""
    for axes, shape in zip(figure.subplots(1, len(SHAPES)), SHAPES, strict=True):
        for place, (arm, title) in enumerate((("alone", "nsqd alone"), ("behind", "with gateway"))):
            heights = [_middle(of_arm(trials[shape, each], _acknowledged, arm)) for each in LAYERS]
            at = [position + 0.4 * (place - 0.5) for position in range(len(LAYERS))]
            axes.bar(at, heights, 0.38, label=title)
        axes.set_xticks(range(len(LAYERS)), LAYERS)
        axes.set(title=shape, ylabel="acknowledged messages/s", ylim=(0, None))
        axes.legend()


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else 0.0
