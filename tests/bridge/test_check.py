"""`srtm bridge check`: what it says of servers that are not there, and of files of dead letters."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from srtm.bridge.check import Finding, check, targets_missing
from srtm.bridge.dead_letter_file import fault_of_file, fault_of_folder
from srtm.bridge.file import Route, read_bridge_file
from srtm.deploy.file import read_plan
from srtm.kafka.client import LastFault, told
from srtm.text.errors import UsageError

AWAY = "127.0.0.1:1"
"""nothing listens on this port"""


def checked(folder: Path) -> list[Finding]:
    file = folder / "bridge.toml"
    file.write_text(
        f'[kafka]\nbootstrap-servers = "{AWAY}"\n'
        f'[[route]]\nfrom = "nsq:a/bridge"\nto = "kafka:b"\nnsqd = ["{AWAY}"]\n'
        f'dead-letter = "file:{folder}/dead"\n'
    )
    return check(read_bridge_file(file))


def test_servers_that_are_away_are_told_with_the_remedy_and_kafka_once(tmp_path: Path) -> None:
    found = list(map(str, checked(tmp_path)))
    assert found == [
        f"[kafka]: WAITS: Kafka at {AWAY} does not answer: Connect to {AWAY} failed: Connection "
        "refused; is it running there? look at bootstrap-servers of [kafka], and at "
        "security.protocol in [kafka.settings]",
        "nsq:a/bridge -> kafka:b",
        f"nsq:a/bridge: WAITS: {AWAY}: Connection refused; is an nsqd or a gateway listening "
        "there?",
        f"nsq:a/bridge: file:{tmp_path}/dead is made with the first dead letter",
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["bridge.toml"]


def test_a_pattern_misses_topics_of_kafka() -> None:
    table = {"from": "nsq:site.*/b", "to": "kafka:{topic}", "lookupd": [AWAY]}
    route = Route.model_validate(table | {"dead-letter": "kafka:{topic}.dead"})
    found = targets_missing(route, ["site.a"], {"site.a": 1, "site.b": 1})
    assert [each.text for each in found] == [
        "Kafka has no topic site.a.dead, or does not show it; create it, or give its user an ACL"
    ]


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        pytest.param("/proc", "is no folder of files", id="where-no-file-can-be-made"),
        pytest.param("/sys", "is no folder of files", id="another"),
        pytest.param("/nowhere", "make it", id="none"),
        pytest.param("/dev/null", "make it", id="no-folder"),
    ],
)
def test_a_folder_where_no_file_can_be_made(folder: str, says: str) -> None:
    assert says in fault_of_folder(Path(folder))


def test_a_file_that_can_be_made_is_not_made(tmp_path: Path) -> None:
    assert fault_of_folder(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/proc/version", "/dev/null", "/"])
def test_what_is_no_plain_file(path: str) -> None:
    assert fault_of_file(path).startswith("it is no plain file")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "kafka-acls.sh"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "kafka-acls.sh"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "sasl.* and ssl.*"),
    ],
)
def test_a_refusal_of_kafka_names_its_remedy(code: int, says: str) -> None:
    assert says in told(KafkaError(code))


def test_words_of_librdkafka_lose_what_says_nothing_to_a_user() -> None:
    last = LastFault()
    said = (
        "h:9/bootstrap: Disconnected (after 3ms in state CONNECT, 1 identical error(s) suppressed)"
    )
    last(KafkaError(KafkaError._TRANSPORT, said))
    last(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert last.text == "Disconnected"


def test_a_file_of_up_that_names_no_bridge_file_is_told_with_the_key(tmp_path: Path) -> None:
    file = tmp_path / "up.toml"
    file.write_text('[[broker]]\n[bridge]\nfile = "x.toml"\n')
    with pytest.raises(UsageError) as caught:
        read_plan(file)
    missing = f"{tmp_path}/x.toml: No such file or directory"
    assert str(caught.value) == f"{file}: file of [bridge]: {missing}"
