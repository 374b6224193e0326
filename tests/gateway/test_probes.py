"""Where probes are wanted may change while nsqd answers."""

import asyncio
from types import SimpleNamespace
from typing import Any

from srtm.contract import Limit
from srtm.gateway.measure.probes import Probes
from srtm.slo import SLO


def test_a_contract_that_ends_while_nsqd_answers_gets_no_probe() -> None:
    topic = SimpleNamespace(name=b"t", limit=Limit(rate=1.0, burst=1.0, slo=SLO.parse("0.99@5ms")))

    class Nsqd:
        async def stats(self, name: str) -> dict[str, Any]:
            topic.limit = None
            return {"topics": [{"topic_name": name, "channels": [{"channel_name": "c"}]}]}

    class Address:
        def connect(self) -> None:
            raise AssertionError("a probe connects")

    everything: Any = SimpleNamespace(by_name={b"t": topic})
    nsqd: Any = Nsqd()
    address: Any = Address()
    probes = Probes(everything, address, nsqd, everything, everything, 1_000)
    asyncio.run(probes.place())
