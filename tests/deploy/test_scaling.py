"""Whether a broker is started or ends: the decision by tables, a day of it by chance; and one that
is started, takes publishers and ends, on real servers."""

import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.remote import Remote
from srtm.deploy.file import plan_of
from srtm.deploy.scaling.decision import Bounds, BrokerRoom, Decision, Scaler, Seen, Step, TopicNeed
from srtm.deploy.scaling.file import ScaleFile, ScaleTable
from srtm.deploy.scaling.launcher import Launcher
from srtm.deploy.scaling.run import Run
from srtm.deploy.up import running
from srtm.http.client import Endpoint, request
from srtm.text.address import Address, free_addresses
from srtm.text.errors import SrtmError
from tests.support.deployments import need_nsq, wait_for

BOUNDS = Bounds(least=0, most=2, unneeded_seconds=60.0, join_seconds=30.0)
B1 = BrokerRoom("b1", "up", 1_000.0, 900.0, ("t",))
X1 = BrokerRoom("x-1", "up", 1_000.0, 300.0, ("t",))
PLACED = TopicNeed("t", publishers=10, placed=10, offered=1_000.0, serving=1, most=4)
NEEDY = replace(PLACED, placed=7)


def seen(
    *brokers: BrokerRoom,
    topics: tuple[TopicNeed, ...] = (PLACED,),
    running: tuple[str, ...] = (),
    known: tuple[str, ...] = (),
    at: float = 0.0,
) -> Seen:
    return Seen(at, brokers, topics, frozenset(running), frozenset(known))


@pytest.mark.parametrize(
    ("found", "step", "broker", "says"),
    [
        pytest.param(seen(B1), Step.NONE, "", "every publisher has a broker", id="nothing"),
        pytest.param(
            seen(B1, topics=(NEEDY,)),
            *(Step.START, "", "3 publishers of t, with about 300 messages/s, have no broker"),
            id="needed",
        ),
        pytest.param(
            seen(B1, topics=(replace(NEEDY, serving=4),)),
            *(Step.NONE, "", "b is too small for another broker: t"),
            id="b-has-no-room",
        ),
        pytest.param(
            seen(B1, topics=(NEEDY,), running=("x-1",)),
            *(Step.NONE, "x-1", "x-1 is not in contact yet"),
            id="one-at-a-time",
        ),
        pytest.param(
            seen(B1, replace(X1, capacity=0.0), topics=(NEEDY,), running=("x-1",)),
            *(Step.NONE, "x-1", "x-1 is not measured yet"),
            id="not-measured",
        ),
        pytest.param(
            seen(B1, X1, replace(X1, name="x-2"), topics=(NEEDY,), running=("x-1", "x-2")),
            *(Step.NONE, "", "max = 2 allows no more brokers"),
            id="the-budget",
        ),
        pytest.param(
            seen(B1, replace(X1, allocated=0.0), topics=(NEEDY,), running=("x-1",)),
            *(Step.NONE, "", "x-1 is empty, and none of them fits on it"),
            id="another-of-its-size-is-no-help",
        ),
        pytest.param(
            seen(B1, X1, running=("x-1",)),
            *(
                Step.NONE,
                "x-1",
                "room for 0 messages/s, up to 80% of their capacities, and it has 300 messages/s",
            ),
            id="others-are-full",
        ),
        pytest.param(
            seen(B1, replace(X1, state="draining"), running=("x-1",)),
            *(Step.DRAIN, "x-1", "its publishers go to the others"),
            id="drained-by-one-that-was-killed-then",
        ),
        pytest.param(
            seen(B1, replace(X1, state="draining", allocated=0.0), running=("x-1",)),
            *(Step.NONE, "x-1", "x-1 gives its shares back"),
            id="draining",
        ),
        pytest.param(
            seen(B1, replace(X1, state="draining"), topics=(NEEDY,), running=("x-1",)),
            *(Step.KEEP, "x-1", "have no broker"),
            id="needed-again",
        ),
        pytest.param(
            seen(B1, BrokerRoom("x-1", "draining", 1_000.0, 0.0, (), 3), running=("x-1",)),
            *(Step.NONE, "x-1", "the nsqd of x-1 holds 3 messages for consumers"),
            id="messages-left",
        ),
        pytest.param(
            seen(B1, BrokerRoom("x-1", "draining", 1_000.0, 0.0), running=("x-1",)),
            *(Step.NONE, "x-1", "what the nsqd of x-1 holds is not known"),
            id="nobody-knows",
        ),
        pytest.param(
            seen(B1, BrokerRoom("x-1", "draining", 1_000.0, 0.0, (), 0), running=("x-1",)),
            *(Step.END, "x-1", "no publishers, shares or messages left"),
            id="empty",
        ),
        pytest.param(
            seen(B1, replace(X1, state="lost"), known=("x-1",)),
            *(Step.START, "x-1", "it ended by itself, or with messages left"),
            id="it-died",
        ),
        pytest.param(
            seen(B1, X1, known=("x-1",)),
            *(Step.NONE, "", "every publisher has a broker"),
            id="somebody-else-s-of-that-name",
        ),
        pytest.param(
            seen(
                B1,
                replace(X1, state="draining", allocated=0.0, waiting=0),
                topics=(replace(PLACED, publishers=0, placed=0),),
                running=("x-1",),
            ),
            *(Step.END, "x-1", "no publishers, shares or messages left"),
            id="a-topic-without-publishers-holds-nobody",
        ),
    ],
)
def test_a_decision(found: Seen, step: Step, broker: str, says: str) -> None:
    decision = Scaler(BOUNDS).decide(found)
    assert (decision.step, decision.broker) == (step, broker)
    assert says in decision.reason


def test_one_that_nobody_needs_is_drained_after_a_while() -> None:
    scaler = Scaler(BOUNDS)
    idle = seen(replace(B1, allocated=400.0), X1, running=("x-1",))
    steps = [scaler.decide(replace(idle, at=at)) for at in (0.0, 59.0, 60.0)]
    assert [each.step for each in steps] == [Step.NONE, Step.NONE, Step.DRAIN]
    assert steps[1].reason == "x-1 is not needed and is drained in 1 s"
    assert steps[2].reason == (
        "the others have room for 400 messages/s, up to 80% of their capacities, and it has "
        "300 messages/s"
    )


def test_a_need_in_between_begins_the_while_anew() -> None:
    scaler = Scaler(BOUNDS)
    idle = seen(replace(B1, allocated=400.0), X1, running=("x-1",))
    full = seen(B1, X1, running=("x-1",))
    found = [
        scaler.decide(replace(each, at=at)) for at, each in ((0, idle), (50, full), (70, idle))
    ]
    assert [each.step for each in found] == [Step.NONE] * 3


def test_one_that_the_others_could_not_take_is_left_alone_for_a_while() -> None:
    scaler = Scaler(BOUNDS)
    idle = seen(replace(B1, allocated=400.0), X1, running=("x-1",))
    scaler.decide(idle)
    scaler.refused("x-1", 60.0)
    steps = [scaler.decide(replace(idle, at=at)).step for at in (61.0, 119.0, 121.0, 181.0)]
    assert steps == [Step.NONE, Step.NONE, Step.NONE, Step.DRAIN]


def test_a_start_that_takes_too_long_is_ended() -> None:
    scaler = Scaler(BOUNDS)
    alone = seen(B1, topics=(NEEDY,), running=("x-1",))
    steps = [scaler.decide(replace(alone, at=at)) for at in (0.0, 30.0, 30.5)]
    assert [each.step for each in steps] == [Step.NONE, Step.NONE, Step.END]


def test_two_that_are_alike_do_not_keep_each_other() -> None:
    scaler, steps = Scaler(BOUNDS), []
    other = replace(X1, name="x-2", allocated=105.0)
    for at in range(61):
        one = replace(X1, allocated=100.0 if at % 2 else 110.0)
        idle = replace(B1, allocated=100.0)
        found = seen(idle, one, other, running=("x-1", "x-2"), at=float(at))
        steps.append(scaler.decide(found).step)
    assert steps[-1] is Step.DRAIN


def test_more_than_max_are_drained_at_once() -> None:
    scaler = Scaler(replace(BOUNDS, most=0))
    assert scaler.decide(seen(B1, X1, running=("x-1",))).step is Step.DRAIN


@given(st.lists(st.tuples(st.floats(0, 5_000), st.floats(0.5, 40)), min_size=1, max_size=60))
def test_whatever_comes_the_budget_is_kept_and_nobody_in_use_ends(
    days: list[tuple[float, float]],
) -> None:
    """A world in which what is decided has happened by the next look."""
    scaler, at = Scaler(BOUNDS), 0.0
    ours: dict[str, BrokerRoom] = {}
    for load, seconds in days:
        at += seconds
        base = replace(B1, allocated=min(load, 1_000.0))
        left = load - base.allocated
        for name, each in ours.items():
            taken = 0.0 if each.state == "draining" else min(left, each.capacity)
            ours[name] = replace(each, allocated=taken, topics=("t",) if taken else (), waiting=0)
            left -= taken
        topic = replace(PLACED, placed=10 if left <= 0 else 5)
        found = seen(base, *ours.values(), topics=(topic,), running=tuple(ours), at=at)
        decision = scaler.decide(found)
        _happens(decision, ours)
        assert len(ours) <= BOUNDS.most


def _happens(decision: Decision, ours: dict[str, BrokerRoom]) -> None:
    name = decision.broker
    if decision.step is Step.START:
        ours[f"x-{len(ours)}"] = BrokerRoom(f"x-{len(ours)}", "up", 1_000.0, 0.0)
    elif decision.step is Step.DRAIN:
        ours[name] = replace(ours[name], state="draining")
    elif decision.step is Step.KEEP:
        ours[name] = replace(ours[name], state="up")
    elif decision.step is Step.END:
        assert not ours[name].allocated, "somebody's publishers would be cut off"
        del ours[name]


# --- the file ---------------------------------------------------------------------------------

FILE = """
[scale]
max = 2
capacity = 500
[elsewhere]
distributor-address = "127.0.0.1:4180"
"""


def scaled_by(line: str) -> str:
    return FILE.replace("max = 2", f"max = 2\n{line}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "[scale]: max: needed", id="empty"),
        pytest.param(FILE.replace("capacity = 500", ""), "give capacity", id="no-capacity"),
        pytest.param(FILE.replace("max = 2", "max = 2\nmin = 3"), "min = 3 is over max", id="min"),
        pytest.param(FILE.replace("max", "mx"), 'did you mean "max"', id="a-slip"),
        pytest.param(FILE.split("[elsewhere]")[0], "distributor-address is missing", id="whose"),
        pytest.param(FILE + "[brokers]\n", "[brokers]: known are", id="another-table"),
        pytest.param(FILE + "[broker]\nname = 'b'\n", "[broker] name: [scale] says", id="name"),
        pytest.param(FILE + "[broker]\nnsqd-flag = []\n", "nsqd-flag", id="a-slip-of-a-broker"),
        pytest.param(FILE + "[[broker]]\n", "[broker] is to be one table", id="many"),
        pytest.param(scaled_by('host = "0.0.0.0"'), "no address that clients reach", id="any-host"),
        pytest.param(scaled_by('data-path = "~no-such-user/x"'), "data-path", id="no-user"),
    ],
)
def test_a_file_that_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "scale.toml"
    file.write_text(text)
    with pytest.raises(SrtmError) as told:
        ScaleFile(file)
    assert says in str(told.value)
    assert str(file) in str(told.value)
    assert "\n" not in str(told.value)


def test_what_a_broker_is_started_by_is_read_alike_in_any_folder(tmp_path: Path) -> None:
    file = tmp_path / "scale.toml"
    text = FILE + 'distributor-token-file = "token"\n[broker]\ntrace-dir = "t"\nsnappy = "false"\n'
    file.write_text(text)
    scaled, tcp, http = ScaleFile(file), Address("127.0.0.1", 4250), Address("127.0.0.1", 4251)
    found = plan_of(tomllib.loads(scaled.text_for("extra-1", tcp, http)), "there", Path("/"))
    assert found == scaled.plan_for("extra-1", tcp, http)
    (broker,) = found.brokers
    assert (broker.name, broker.capacity, broker.tcp_address) == ("extra-1", 500, tcp)
    assert broker.gateway["trace_dir"] == str(tmp_path / "t")
    assert found.elsewhere is not None
    assert found.elsewhere.distributor_token_file == str(tmp_path / "token")
    assert found.deployment.data_path == tmp_path / "srtm-scale" / "extra-1"


def test_messages_in_the_files_of_an_nsqd_keep_its_broker(tmp_path: Path) -> None:
    file = tmp_path / "scale.toml"
    file.write_text(FILE)
    launcher = Launcher(ScaleFile(file))
    folder = tmp_path / "srtm-scale" / "extra-1"
    data = folder / "extra-1" / "data"
    data.mkdir(parents=True)
    assert launcher.known() == frozenset(), "it was never started"
    (folder / "broker.toml").touch()
    assert launcher.known() == {"extra-1"}
    (folder / "ended").touch()
    assert launcher.known() == frozenset()
    assert launcher.over("extra-1")
    (data / "t:c.diskqueue.meta.dat").write_text("50\n0,0\n0,5000\n")
    assert launcher.kept("extra-1") == 50
    assert launcher.known() == {"extra-1"}
    assert not launcher.over("extra-1")


def test_the_page_has_every_key() -> None:
    page = Path("srtm/deploy/README.md").read_text()
    for name, field in ScaleTable.model_fields.items():
        assert f"| `{field.alias or name}` |" in page


# --- real servers -----------------------------------------------------------------------------


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short, for the paths of unix sockets, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        yield Path(folder)


def test_a_broker_comes_for_those_without_and_goes_when_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_nsq(monkeypatch)
    door, tcp, http = map(str, free_addresses(3))
    spec = {
        "deployment": {"data-path": str(tmp_path / "d")},
        "distributor": {"http-address": door, "lease-duration": "3s"},
        "broker": [{"name": "b1", "tcp-address": tcp, "http-address": http, "capacity": 500}],
    }
    file = tmp_path / "scale.toml"
    file.write_text(FILE.replace("127.0.0.1:4180", door) + "[broker]\nhttp-admin = true\n")
    file.write_text(file.read_text().replace("max = 2", 'max = 2\nunneeded-for = "1ms"'))
    with running(spec):
        remote = Remote(Endpoint(door))
        register(remote, count=8)
        wait_for(lambda: Run(ScaleFile(file), remote).would().step is Step.START)
        assert names(remote) == ["b1"], "a dry run starts none"
        run = Run(ScaleFile(file), remote)
        try:
            wait_for(lambda: run.step() and placed(remote) == 8)
            assert names(remote) == ["b1", "extra-1"]
            again = Run(ScaleFile(file), remote)
            assert again.step().step is Step.NONE, "who comes next takes it over"
            extra = by_name(remote)["extra-1"]["http_address"]
            hold_one(extra)
            for number in range(3, 8):
                remote.call("DELETE", "topics", "t", "publishers", f"p{number}")
            wait_for(lambda: "holds 1 message" in again.step().reason)
            assert names(remote) == ["b1", "extra-1"]
            assert request(extra, "POST", "/channel/empty?topic=t&channel=c").status == 200
            wait_for(lambda: again.step() and names(remote) == ["b1"])
            assert placed(remote) == 3
        finally:
            end_all(ScaleFile(file))


def register(remote: Remote, count: int) -> None:
    """So many publishers of 100 messages/s, placed where there is room."""
    remote.call("PUT", "topics", "t", body={"rate": 2_000.0, "burst": 100.0})
    rows = [{"id": f"p{n}", "rate": 100.0} for n in range(count)]
    remote.call("POST", "topics", "t", "publishers", body={"publishers": rows})
    remote.call("POST", "topics", "t", "placements", body={"policy": "srtm"})


def by_name(remote: Remote) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in remote.call("GET", "brokers")["brokers"]}


def names(remote: Remote) -> list[str]:
    return sorted(by_name(remote))


def placed(remote: Remote) -> int:
    (topic,) = remote.call("GET", "topics")["topics"]
    return int(topic["placed"])


def hold_one(door: str) -> None:
    """A message for a consumer that is not there yet."""
    for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/pub?topic=t"):
        assert request(door, "POST", path, document="m").status == 200


def end_all(file: ScaleFile) -> None:
    launcher = Launcher(file)
    for name in launcher.running():
        launcher.end(name, 0.0, for_good=True)
    wait_for(lambda: not Launcher(file).running())
