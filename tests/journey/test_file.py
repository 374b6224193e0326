"""The file of journeys, and the files that it names."""

from pathlib import Path

import pytest

from srtm.journey.file import read_journeys
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

POOL = """
[nsq]
topic = "alarms"
channel = "handlers"
lookupd = ["127.0.0.1:4161"]

[group]
slo = "0.99@150ms"
"""
GROUP = """
[kafka]
bootstrap-servers = "127.0.0.1:9092"

[group]
topic = "events"
id = "workers"
slo = "0.99@150ms"
"""
BRIDGE = """
[kafka]
bootstrap-servers = "127.0.0.1:9092"

[[route]]
from = "nsq:alarms/bridge"
to = "kafka:events"
nsqd = ["127.0.0.1:4150"]
"""
JOURNEY = """
[[journey]]
topic = "alarms"
slo = "0.99@200ms over 10m"
consumers = "pool.toml"
"""
BY_KAFKA = """
[[journey]]
topic = "alarms"
slo = "0.99@200ms"
consumers = "group.toml"
bridge = "bridge.toml"
nsqd-http = ["127.0.0.1:4151"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("pool", POOL), ("group", GROUP), ("bridge", BRIDGE)):
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "journeys.toml"
    path.write_text(text)
    return path


def test_a_journey_to_a_pool_is_read_with_it(folder: Path) -> None:
    [found] = read_journeys(written(folder, JOURNEY)).all
    assert (found.name, found.topic, found.channel, found.group) == (
        "alarms",
        "alarms",
        "handlers",
        "",
    )
    assert found.slo == SLO.parse("0.99@200ms over 10m")
    assert found.lookupd == ("127.0.0.1:4161",)
    assert found.ends_at == ("alarms", "handlers")


def test_a_journey_over_a_bridge_has_its_route(folder: Path) -> None:
    [found] = read_journeys(written(folder, BY_KAFKA)).all
    assert (found.channel, found.ends_at) == ("bridge", ("events", "workers"))
    assert found.route is not None
    assert found.nsqd_http == ("127.0.0.1:4151",)
    assert found.slo.window_seconds == 3600


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "there is no [[journey]]", id="none"),
        pytest.param(JOURNEY.replace("[[", "[").replace("]]", "]"), "two brackets", id="one"),
        pytest.param(JOURNEY + "speed = 1", "speed", id="an-unknown-key"),
        pytest.param(JOURNEY.replace("0.99@200ms over 10m", "fast"), "not an SLO", id="no-slo"),
        pytest.param(JOURNEY.replace("alarms", "a b"), "'a b' is no name", id="no-topic"),
        pytest.param(JOURNEY + 'name = "a b"', "'a b' is none", id="no-name"),
        pytest.param(JOURNEY + JOURNEY, "two journeys are called alarms", id="a-name-twice"),
        pytest.param(
            JOURNEY + JOURNEY + 'name = "again"', "are the same one", id="the-same-one-twice"
        ),
        pytest.param(
            JOURNEY + JOURNEY.replace("0.99@", "0.9@") + 'name = "again"',
            "different SLOs",
            id="two-slos-of-one-group",
        ),
        pytest.param(JOURNEY.replace("pool", "none"), "none.toml", id="no-such-file"),
        pytest.param(JOURNEY.replace("alarms", "other"), "consumes topic alarms", id="its-topic"),
        pytest.param(JOURNEY + 'bridge = "bridge.toml"', "bridge has no effect", id="no-need"),
        pytest.param(
            BY_KAFKA.replace('bridge = "bridge.toml"', ""), "is a Kafka group", id="no-bridge"
        ),
        pytest.param(BY_KAFKA.replace("alarms", "other"), "no route from", id="no-route"),
        pytest.param(
            BY_KAFKA + 'split = "auto"', "needs journey-address in [bridge]", id="who-does-not-ask"
        ),
        pytest.param(JOURNEY + 'split = "on"', "'off', 'propose' or 'auto'", id="no-mode"),
        pytest.param(
            JOURNEY + '[journeys]\ndistributor-token-file = "t"',
            "need distributor-address",
            id="files-of-no-distributor",
        ),
        pytest.param(
            BY_KAFKA.replace('nsqd-http = ["127.0.0.1:4151"]', ""),
            "nsqd-http",
            id="nobody-knows-the-gateways",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_journeys(written(folder, text))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_two_topics_may_end_at_one_group(folder: Path) -> None:
    bridge = BRIDGE + BRIDGE[BRIDGE.index("[[route]]") :].replace("alarms", "others")
    (folder / "bridge.toml").write_text(bridge)
    both = read_journeys(written(folder, BY_KAFKA + BY_KAFKA.replace("alarms", "others"))).all
    assert [each.topic for each in both] == ["alarms", "others"]
    assert both[0].ends_at == both[1].ends_at
