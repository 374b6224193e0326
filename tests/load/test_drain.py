"""How long the end of a run is waited for, by a clock of the test's own."""

from types import SimpleNamespace

import numpy as np
import pytest

from srtm.load import LoadSettings, runner
from srtm.load.record import Received
from srtm.load.schedule import Schedule

NS = 10**9
MESSAGES = 3


@pytest.mark.parametrize(
    ("come", "ends_at_s"),
    [
        pytest.param([(4, 0), (8, 1), (12, 2)], 12, id="as-long-as-they-come"),
        pytest.param([(4, 0), (8, 1)], 13, id="no-longer"),
        pytest.param([], 5, id="none"),
        pytest.param([(4, 0), (4, 1), (4, 1), (8, 1), (12, 1)], 9, id="doubles-renew-nothing"),
    ],
)
def test_acknowledged_messages_are_waited_for_as_long_as_they_come(
    monkeypatch: pytest.MonkeyPatch, come: list[tuple[int, int]], ends_at_s: int
) -> None:
    now = [NS]
    coming = [((1 + at) * NS, number) for at, number in come]
    received = Received()

    def poll(timeout_seconds: float, _: int) -> list[tuple[int, int]]:
        now[0] += int(timeout_seconds * NS)
        while coming and coming[0][0] <= now[0]:
            received.sequences.append(coming.pop(0)[1])
            received.read_counts.append(1)
            received.read_at_ns.append(now[0])
        return []

    settings = LoadSettings(
        topic="t", publish_addresses=("127.0.0.1:1",), rate_per_second=1.0, drain_seconds=5.0
    )
    run = runner._Run(settings, None, None)
    none = np.zeros(MESSAGES, dtype=np.int64)
    run.record.plan(Schedule(none, none), 1)
    run.record.answered_ns[:] = run.record.intended_ns
    run.record.received.append(received)
    monkeypatch.setattr(runner, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(
        run,
        "fleet",
        SimpleNamespace(
            poller=SimpleNamespace(poll=poll),
            handlers={},
            publishers=[],
            consumers=[SimpleNamespace(closed=False)],
        ),
    )
    run._drain()
    assert (now[0] - NS) / NS == pytest.approx(ends_at_s, abs=0.2)
