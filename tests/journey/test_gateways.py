"""How far a gateway has told, whatever happens to one of its answers."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from srtm.journey import gateways
from srtm.journey.file import read_journeys
from srtm.journey.gateways import Gateways
from srtm.text.errors import UnavailableError


@dataclass
class Told:
    document: Any
    where: str = "http://127.0.0.1:1/arrivals"
    status: int = 200

    def json(self) -> Any:
        return self.document


def answer(cursor: int, boot: str = "one") -> Told:
    return Told({"boot_id": boot, "wall_ns": 1, "cursor": cursor, "more": False})


def test_after_an_error_it_is_asked_from_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway tells of ten seconds again to whoever asks from the beginning."""
    (tmp_path / "pool.toml").write_text(
        '[nsq]\ntopic = "t"\nchannel = "c"\nnsqd = ["127.0.0.1:1"]\n'
        'nsqd-http = ["127.0.0.1:1"]\n[group]\nslo = "0.9@2s"'
    )
    path = tmp_path / "journeys.toml"
    path.write_text('[[journey]]\ntopic = "t"\nslo = "0.99@1s"\nconsumers = "pool.toml"')
    [journey] = read_journeys(path).all
    answers: list[Told | Exception] = [
        answer(10),
        UnavailableError("it does not answer"),
        answer(20),
        Told({"nobody": "knows"}),
        answer(30),
        answer(7, "another host"),
        answer(8, "another host"),
        answer(9, "another host"),
    ]
    asked: list[int] = []
    taken: list[int] = []

    async def call(endpoint: Any, method: str, where: str, **_: Any) -> Told:
        if not answers:
            await asyncio.sleep(60)
        asked.append(int(where.rpartition("since=")[2]))
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(gateways, "call", call)
    monkeypatch.setattr(gateways, "https_port", lambda found: None)
    for name in ("_ASK_SECONDS", "_AWAY_SECONDS"):
        monkeypatch.setattr(gateways, name, 0.001)
    asking = Gateways(journey, lambda document, clock: taken.append(document["cursor"]))

    async def work() -> None:
        task = asyncio.create_task(asking.run())
        while answers or len(taken) < 5:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(asyncio.wait_for(work(), 20))
    assert asked == [0, 10, 10, 20, 20, 30, 0, 8]
    assert taken == [10, 20, 30, 8, 9]
