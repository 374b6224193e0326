"""The SLOs that journeys want of routes, while others end and start runners too. The routes are
stubs that take a while to drain."""

import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

from srtm.bridge import service
from srtm.bridge.file import read_bridge_file
from srtm.bridge.runner import Runner
from srtm.bridge.service import Service
from srtm.limits.slo import SLO

ASKED = SLO.parse("0.99@60ms")
FILE = """
[bridge]
http-address = "127.0.0.1:1"
[kafka]
bootstrap-servers = "127.0.0.1:{kafka}"
"""
ROUTE = """
[[route]]
name = "a"
from = "nsq:ta/c"
to = "kafka:ka"
nsqd = ["127.0.0.1:2"]
"""
OTHER = ROUTE.replace('"a"', '"b"').replace("ta/c", "tb/c")


class Stub(Runner):
    """drained: set when routes that are to end may do so"""

    running: ClassVar[list["Stub"]] = []
    drained: ClassVar[threading.Event]

    def __init__(self, route: Any, kafka: Any, bridge: Any, drain: float, topic: str = "") -> None:
        super().__init__(route, kafka, bridge, drain)
        self.topic = topic

    def work(self) -> None:
        self.running.append(self)
        self.stopping.wait()
        self.drained.wait(10)
        self.running.remove(self)


@pytest.fixture
def bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr(service, "NsqToKafka", Stub)
    monkeypatch.setattr(Stub, "running", [])
    monkeypatch.setattr(Stub, "drained", threading.Event(), raising=False)
    path = tmp_path / "bridge.toml"
    path.write_text(FILE.format(kafka=3) + ROUTE)
    made = Service(path, read_bridge_file(path))
    for route in made._file.routes:
        made._begin(route)
    made._told = [("a", "")]
    return made


def end(bridge: Service) -> None:
    Stub.drained.set()
    for each in bridge.runners():
        each.ask_stop()
        assert each.join(10)
    assert Stub.running == []


def test_a_route_begins_anew_with_what_is_wanted(bridge: Service) -> None:
    Stub.drained.set()
    [before] = bridge.runners()
    bridge._aim([ASKED])
    [after] = bridge.runners()
    assert after is not before
    assert after.route.slo == ASKED
    bridge._aim([ASKED])
    assert bridge.runners() == [after]
    bridge._aim([None])
    assert [each.route.slo for each in bridge.runners()] == [None]
    end(bridge)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(FILE.format(kafka=3) + ROUTE + "max-in-flight = 77", id="another-route"),
        pytest.param(FILE.format(kafka=4) + ROUTE, id="another-kafka"),
        pytest.param(FILE.format(kafka=3) + OTHER, id="no-such-route"),
    ],
)
def test_the_file_is_read_again_meanwhile(bridge: Service, tmp_path: Path, text: str) -> None:
    [before] = bridge.runners()
    aims = threading.Thread(target=bridge._aim, args=([ASKED],))
    aims.start()
    assert before.stopping.wait(10)
    (tmp_path / "bridge.toml").write_text(text)
    reads = threading.Thread(target=bridge._read_again)
    reads.start()
    Stub.drained.set()
    for each in (aims, reads):
        each.join(20)
        assert not each.is_alive()
    runners = bridge.runners()
    assert [each.route.name for each in runners] == [each.name for each in bridge._file.routes]
    assert Stub.running == runners
    assert [each.route.slo for each in runners] == [ASKED if "ta" in text else None]
    assert [each.max_in_flight for each in bridge._file.routes] == [
        each.route.max_in_flight for each in runners
    ]
    end(bridge)
