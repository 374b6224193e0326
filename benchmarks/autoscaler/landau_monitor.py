"""How soon a monitor follows a step, and what it leaves of noise (Landau Fig. 4.2, 4.3 and 5.2).

A partition gets records of 123 bytes, as his does: at three speeds for 35 s each, and with random
waits of 0.01 to 2 s between two. His monitor takes the sizes of the last 30 s; ours takes those
since it was last asked, a second ago, and leaves the smoothing to the forecast of a policy. Both
see the partition ten times a second. All is simulated, and ours is the product's own code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.bars import judge
from benchmarks.harness.report import Picture, Report, tabulate
from benchmarks.harness.session import Session
from srtm.autoscaler.live.monitor import Monitor, Sample

Floats = NDArray[np.float64]

RECORD_BYTES = 123
STEPS = (10.0, 30.0, 60.0)
"""records/s, of which he prints none"""
STEP_SECONDS = 35.0
WAITS = (0.01, 2.0)
NOISE_SECONDS, SEEDS = 600.0, 5
WINDOW_SECONDS = 30.0
_SAMPLE_SECONDS, _READ_SECONDS = 0.1, 1.0
_NEAR = 0.1
"""of the speed: so near it is followed"""


@dataclass(frozen=True, slots=True)
class Followed:
    """Speeds in bytes/s at the end of each second, by his window and by ours."""

    at: Floats
    window: Floats
    ours: Floats


def follow(arrivals: Floats, seconds: float) -> Followed:
    """What both measure of records that came at these times, ascending."""
    grid = np.arange(0.0, seconds + _SAMPLE_SECONDS / 2, _SAMPLE_SECONDS)
    counts = np.searchsorted(arrivals, grid, side="right")
    monitor = Monitor(1.0, weigh="bytes")
    every, back = round(_READ_SECONDS / _SAMPLE_SECONDS), round(WINDOW_SECONDS / _SAMPLE_SECONDS)
    at, window, ours = [], [], []
    for place, (now, count) in enumerate(zip(grid.tolist(), counts.tolist(), strict=True)):
        sizes = {0: count * RECORD_BYTES}
        monitor.see(Sample(now, {0: count}, {0: 0}, {0: count}, sizes))
        if place and place % every == 0:
            first = max(0, place - back)
            came = count - int(counts[first])
            at.append(now)
            window.append(came * RECORD_BYTES / (now - float(grid[first])))
            ours.append(monitor.read().partitions[0].rate)
    return Followed(np.array(at), np.array(window), np.array(ours))


def steps() -> Floats:
    """Arrivals of the three speeds, one after the other, evenly spaced."""
    found = [
        number * STEP_SECONDS + np.arange(1, round(rate * STEP_SECONDS) + 1) / rate
        for number, rate in enumerate(STEPS)
    ]
    return np.concatenate(found)


def noisy(seed: int) -> Floats:
    waits = np.random.default_rng(seed).uniform(*WAITS, round(2 * NOISE_SECONDS))
    times = np.cumsum(waits)
    found: Floats = times[times <= NOISE_SECONDS]
    return found


def until_near(at: Floats, speeds: Floats) -> list[float]:
    """Seconds after each of the later steps until the speed is near the new one, and stays there
    as long as it lasts."""
    found = []
    for number, rate in enumerate(STEPS[1:], 1):
        begin, end = number * STEP_SECONDS, (number + 1) * STEP_SECONDS
        inside = (at > begin) & (at <= end)
        true = rate * RECORD_BYTES
        off = at[inside][np.abs(speeds[inside] - true) > _NEAR * true]
        found.append(float(off.max() - begin + _READ_SECONDS) if len(off) else _READ_SECONDS)
    return found


def run(session: Session) -> Report:
    stepped = follow(steps(), len(STEPS) * STEP_SECONDS)
    noise = [follow(noisy(seed), NOISE_SECONDS) for seed in range(SEEDS)]
    waits = {
        "window of 30 s": until_near(stepped.at, stepped.window),
        "ours": until_near(stepped.at, stepped.ours),
    }
    settled = [each.at > WINDOW_SECONDS for each in noise]
    windows = [each.window[at] for each, at in zip(noise, settled, strict=True)]
    ours = [each.ours[at] for each, at in zip(noise, settled, strict=True)]
    true = RECORD_BYTES / float(np.mean(WAITS))
    rows: list[tuple[str, list[float], Sequence[Floats]]] = [
        ("window of 30 s", waits["window of 30 s"], windows),
        ("ours", waits["ours"], ours),
    ]
    return Report(
        settings={"record_bytes": RECORD_BYTES, "steps_per_second": STEPS, "waits": WAITS},
        figures={"steps": waits, "noise": {name: list(map(spread, f)) for name, _, f in rows}},
        bars=[
            judge(
                "Fig. 4.2: window of 30 s: seconds until it has followed a step",
                waits["window of 30 s"],
                at_most=WINDOW_SECONDS,
            ),
            judge(
                "Fig. 4.2: ours: seconds until it has followed a step, over the window's",
                [a / b for a, b in zip(waits["ours"], waits["window of 30 s"], strict=True)],
                at_most=1.0,
            ),
            judge(
                "Fig. 4.3: window of 30 s: mean speed off the true one, %",
                [100 * abs(float(each.mean()) / true - 1) for each in windows],
                at_most=5.0,
            ),
            judge(
                "Fig. 4.3: ours: spread under noise, over the window's",
                [spread(a) / spread(b) for a, b in zip(ours, windows, strict=True)],
                at_most=1.0,
            ),
        ],
        tables=[
            tabulate(
                "a monitor after a step, and under noise",
                rows,
                ("monitor", lambda row: row[0]),
                ("follows a step after, s", lambda row: f"{min(row[1]):g} .. {max(row[1]):g}"),
                ("mean speed, bytes/s", lambda row: float(np.mean([f.mean() for f in row[2]]))),
                ("spread, %", lambda row: 100 * float(np.mean([spread(f) for f in row[2]]))),
            )
        ],
        notes=[f"under noise {true:.0f} bytes/s come on average"],
        draw=lambda figure: draw(figure, stepped, noise[0]),
    )


def spread(speeds: Floats) -> float:
    """Standard deviation over mean."""
    return float(speeds.std() / speeds.mean())


def draw(figure: Picture, stepped: Followed, noise: Followed) -> None:
    """Speeds over time, after steps and under noise."""
    for axes, found, title in zip(
        figure.subplots(1, 2), (stepped, noise), ("steps", "noise"), strict=True
    ):
        axes.plot(found.at, found.ours, lw=0.8, label="ours")
        axes.plot(found.at, found.window, label="window of 30 s")
        axes.set(xlabel="s", ylabel="bytes/s", title=title)
        axes.legend()
