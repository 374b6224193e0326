"""The benchmark's kill -9 of bridge, gateway, nsqd and Kafka, shorter."""

from pathlib import Path

import pytest

from benchmarks.bridge.faults import Faults
from srtm.kafka.server import missing


def test_nothing_is_lost_or_out_of_order_while_everything_is_killed(tmp_path: Path) -> None:
    why = missing()
    if why:
        pytest.skip(why)
    outcome = Faults(tmp_path).run(15)
    assert outcome.acknowledged > 1000
    # Each of them, the nsqd that it comes from too; its topic may not be empty in time.
    assert all(outcome.kills[name] for name in ("nsqd", "gateway", "bridge", "kafka"))
    assert outcome.lost_in_kafka == outcome.lost_in_nsq == 0
    assert outcome.out_of_order == 0
