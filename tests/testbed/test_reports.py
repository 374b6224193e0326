"""The relay of reports: whom it lets through is drawn by shares."""

import asyncio

import pytest

from srtm.testbed import reports
from srtm.testbed.reports import Fate, Odds, Relay
from srtm.text.address import Address


@pytest.mark.parametrize(
    ("at", "fate"),
    [(0.0, "lose"), (0.24, "lose"), (0.25, "deafen"), (0.5, "hold"), (0.75, "pass"), (1.0, "pass")],
)
def test_shares_follow_one_another(at: float, fate: str) -> None:
    assert Odds(lose=0.25, deafen=0.25, hold=0.25).draw(at) == fate


@pytest.mark.parametrize(
    ("odds", "heard", "answered"),
    [
        pytest.param(Odds(), True, True, id="pass"),
        pytest.param(Odds(lose=1.0), False, False, id="lost"),
        pytest.param(Odds(deafen=1.0), True, False, id="heard-and-not-answered"),
        pytest.param(Odds(hold=1.0, hold_seconds=0.01), True, True, id="late"),
    ],
)
def test_what_becomes_of_a_request(
    odds: Odds, heard: bool, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MARK", 0)  # another one needs CAP_NET_ADMIN

    async def talk() -> tuple[list[bytes], bytes]:
        got: list[bytes] = []

        async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.append(await reader.readuntil(b"?"))
            writer.write(b"answer")
            writer.close()

        behind = await asyncio.start_server(far, "127.0.0.1", 0)
        to = Address("127.0.0.1", behind.sockets[0].getsockname()[1])
        relay = Relay(to, odds, seed=1)
        front = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*front.sockets[0].getsockname())
        writer.write(b"question?")
        answer = await reader.read()
        writer.close()
        front.close()
        behind.close()
        assert sum(relay.counts.values()) == 1
        return got, answer

    got, answer = asyncio.run(talk())
    assert got == ([b"question?"] if heard else [])
    assert answer == (b"answer" if answered else b"")
    assert Fate.PASS in Relay(Address("x", 1), odds, 1).counts
