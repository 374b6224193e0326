"""Topics over several brokers: the sum never exceeds the contract, whoever fails on the way."""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any
from urllib.parse import unquote

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from srtm.deploy import topic_commands
from srtm.deploy.file import plan_of
from srtm.deploy.kept_topics import KeptTopics, describe, merge
from srtm.deploy.split import change
from srtm.deploy.topics import Topics
from srtm.deploy.up import deployed
from srtm.deployment.document import Distributor, find
from srtm.limits.contract import Contract, Limit, Mode
from srtm.text.address import free_addresses
from srtm.text.errors import SrtmError, UnavailableError, UsageError

BROKERS = [{"tcp-address": f"h:{2 * n + 1}", "http-address": f"h:{2 * n + 2}"} for n in range(3)]


class FarGateway(ThreadingUnixStreamServer):
    """A gateway's admin door as far as its API says."""

    daemon_threads = True

    def __init__(self, path: str, on_change: Callable[[], None]) -> None:
        super().__init__(path, _Handler)
        self.limits: dict[str, Limit] = {}
        self.refusal: tuple[int, str] | None = None
        self.on_change = on_change
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
            self.server_close()

    def document(self) -> dict[str, Any]:
        counts = {"offered": 3, "admitted": 2, "rejected": 0, "waiting": 1, "throttled": True}
        wait = {"token_wait": {"p50": 0.001, "p95": 0.002, "p99": 0.004}}
        rows = [
            {"topic": name, **limit.document(), **counts, **wait}
            for name, limit in self.limits.items()
        ]
        return {"topics": [*rows, {"topic": "unlimited", "throttled": False, "offered": 1}]}


class _Handler(BaseHTTPRequestHandler):
    server: FarGateway

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, document: object, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(self.server.document())

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.refusal:
            status, message = self.server.refusal
            self.answer({"message": message}, status)
            return
        self.server.limits[self.topic] = Limit.model_validate(body)
        self.server.on_change()
        self.answer({})

    def do_DELETE(self) -> None:
        self.server.limits.pop(self.topic, None)
        self.answer({})

    @property
    def topic(self) -> str:
        return unquote(self.path.removeprefix("/topics/"))


class Far:
    """Three brokers' gateways, and the deployment that names them."""

    def __init__(self, folder: Path) -> None:
        plan = plan_of(
            {"deployment": {"data-path": str(folder)}, "distributor": False, "broker": BROKERS},
            "t",
            folder,
        )
        plan.layout.make(plan.broker_names)
        self.deployment = deployed(plan)
        self.deployment.save()
        self.gateways = {
            each.name: FarGateway(each.admin_socket, self.note) for each in self.deployment.brokers
        }
        self.kept = KeptTopics(self.deployment.layout)
        self.topics = Topics(self.deployment)
        self.sums: list[tuple[float, float]] = []
        self.kept_then: list[Limit | None] = []

    def note(self) -> None:
        """After each change: the sum of what has a limit, and what a restart would hand out."""
        held = [each for each in self.shares() if each]
        self.sums.append((sum(rate for rate, _ in held), sum(burst for _, burst in held)))
        self.kept_then.append(self.kept.read().get("t"))

    def give(self, *limits: Limit | None) -> None:
        for gateway, limit in zip(self.gateways.values(), limits, strict=True):
            if limit:
                gateway.limits["t"] = limit

    def shares(self) -> list[tuple[float, float] | None]:
        limits = [gateway.limits.get("t") for gateway in self.gateways.values()]
        return [(each.rate, each.burst) if each else None for each in limits]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short, for the paths of unix sockets, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        yield Path(folder)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    far = Far(tmp_path)
    yield far
    for gateway in far.gateways.values():
        gateway.stop()


def limit(rate: float, burst: float, **rules: Any) -> Limit:
    return Limit(rate=rate, burst=burst, **rules)


# --- the order of changes, as a function ------------------------------------------------------

numbers = st.floats(1, 1e6)
limits = st.builds(limit, numbers, numbers, mode=st.sampled_from(Mode))


@given(st.lists(limits, min_size=1, max_size=5), limits, st.randoms())
def test_no_sum_exceeds_old_and_new_contract_at_any_instant(
    old: list[Limit], share: Limit, random: Any
) -> None:
    held = {f"b{number}": each for number, each in enumerate(old)}
    plan = change(held, share)
    now = dict(held)

    def total(key: str) -> float:
        return float(sum(getattr(each, key) for each in now.values()))

    before = {key: total(key) for key in ("rate", "burst")}
    for steps, bound in ((plan.shrinks, before), (plan.grows, None)):
        steps = random.sample(steps, len(steps))  # whoever answers first
        for step in steps:
            now[step.broker] = step.limit
            for key in ("rate", "burst"):
                most = bound[key] if bound else getattr(share, key) * len(old)
                assert total(key) <= most * (1 + 1e-12)
    assert all(each == share for each in now.values())


def test_what_is_right_already_is_left_alone() -> None:
    plan = change({"a": limit(5, 5), "b": limit(5, 5)}, limit(5, 5))
    assert plan.shrinks == plan.grows == ()


# --- over the admin doors ---------------------------------------------------------------------


def test_a_new_topic_is_split_evenly_and_kept(far: Far) -> None:
    contract = far.topics.change("t", {"rate": 30, "burst": 12, "slo": "0.99@5ms"}).contract
    assert far.shares() == [(10, 4)] * 3
    assert far.kept.read() == {"t": contract.limit()}


def test_shrinks_come_first_and_a_restart_never_hands_out_more(far: Far) -> None:
    far.give(limit(10, 40), limit(10, 40), limit(40, 4))
    far.topics.change("t", {"rate": 90, "burst": 30})
    assert far.shares() == [(30, 10)] * 3
    assert [burst for _, burst in far.sums] == [54, 24, 24, 24, 24, 30]
    assert all(rate <= 90 for rate, _ in far.sums)
    in_the_middle, at_the_end = far.kept_then[0], far.kept_then[-1]
    assert in_the_middle
    assert (in_the_middle.rate, in_the_middle.burst) == (30, 12)
    assert at_the_end == limit(90, 30)


def test_what_is_not_given_stays_and_none_takes_away(far: Far) -> None:
    far.topics.change("t", {"rate": 30, "burst": 12, "slo": "0.99@5ms", "max-wait": "2s"})
    contract = far.topics.change("t", {"rate": 60, "max-wait": None, "mode": "reject"}).contract
    assert contract.document() == {
        "topic": "t",
        "rate": 60,
        "burst": 12,
        "mode": "reject",
        "slo": "0.99@5ms",
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"rate": 1}, "give both --rate and --burst", id="new-without-burst"),
        pytest.param({"rate": -1, "burst": 3}, "topic t: rate: .*greater than 0", id="negative"),
        pytest.param({"rate": 1, "burst": 2}, "burst 2 cannot be split over 3", id="burst-small"),
    ],
)
def test_a_bad_change_changes_nothing(far: Far, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        far.topics.change("t", changes)
    assert far.shares() == [None] * 3
    assert far.kept.read() == {}


def test_a_broker_that_is_silent_beforehand_stops_the_change(far: Far) -> None:
    far.give(limit(10, 4), limit(10, 4), limit(10, 4))
    far.gateways["broker-3"].stop()
    with pytest.raises(UnavailableError, match="not changed on any broker: broker-3 does not"):
        far.topics.change("t", {"rate": 3})
    assert far.sums == []


def test_a_broker_that_fails_in_the_shrinks_keeps_the_others_from_growing(far: Far) -> None:
    far.give(limit(10, 10), limit(10, 10), limit(10, 10))
    far.gateways["broker-2"].refusal = 409, "10000 topics are in use"
    with pytest.raises(SrtmError) as caught:
        far.topics.change("t", {"rate": 60, "burst": 6})
    assert str(caught.value) == (
        "topic t: after 1 of 3 changes broker-2 failed (broker-2: 10000 topics are in use "
        "(HTTP 409)); no share was raised; now broker-1: rate=10 burst=2 mode=delay, "
        "broker-2: rate=10 burst=10 mode=delay, broker-3: rate=10 burst=10 mode=delay; "
        "run the command again"
    )
    assert far.kept.read() == {"t": limit(30, 6)}
    far.gateways["broker-2"].refusal = None
    far.topics.change("t", {"rate": 60, "burst": 6})
    assert far.shares() == [(20, 2)] * 3


def test_nothing_is_changed_while_nobody_knows_whose_a_topic_is(far: Far) -> None:
    far.topics.change("t", {"rate": 30, "burst": 12})
    address = free_addresses(1)[0]
    away = far.deployment.model_copy(update={"distributor": Distributor(http_address=address)})
    topics = Topics(away)
    for change_it in (lambda: topics.change("t", {"rate": 3}), lambda: topics.delete("t")):
        with pytest.raises(
            UnavailableError, match="topic t was not changed: only the distributor"
        ) as error:
            change_it()
        assert str(address) in str(error.value)
    assert far.shares() == [(10, 4)] * 3
    report = topics.report()
    assert [each.topic for each in report.topics] == ["t", "unlimited"]
    assert list(report.silent) == ["distributor"]


def test_a_topic_is_deleted_everywhere_and_stays_so(far: Far) -> None:
    far.topics.change("t#ephemeral", {"rate": 30, "burst": 12})
    far.topics.delete("t#ephemeral")
    assert not any(gateway.limits for gateway in far.gateways.values())
    assert far.kept.read() == {"t#ephemeral": None}
    with pytest.raises(UsageError, match="has no limit"):
        far.topics.delete("t#ephemeral")


def test_two_changes_do_not_run_at_once(far: Far) -> None:
    with (
        far.kept.changing(),
        pytest.raises(UnavailableError, match="another change of topics"),
        KeptTopics(far.deployment.layout).changing(wait_seconds=0.1),
    ):
        pass


# --- topics.json and the file -----------------------------------------------------------------

IN_FILE = Contract.parse("t,rate=10,burst=4")


@pytest.mark.parametrize(
    ("kept", "topics", "lines"),
    [
        pytest.param({}, ["rate=10 burst=4 mode=delay"], [], id="nothing-set"),
        pytest.param(
            {"t": limit(10, 4)}, ["rate=10 burst=4 mode=delay"], [], id="set-to-what-the-file-says"
        ),
        pytest.param(
            {"t": limit(7, 4)},
            ["rate=7 burst=4 mode=delay"],
            [
                "topic t keeps rate=7 burst=4 mode=delay, as set at run time, "
                "not the file's rate=10 burst=4 mode=delay"
            ],
            id="run-time-wins-and-is-told",
        ),
        pytest.param(
            {"t": None},
            [],
            ["topic t stays deleted, as done at run time; srtm topic set brings it back"],
            id="deleted-stays-deleted",
        ),
        pytest.param(
            {"u": limit(7, 4), "v": None},
            ["rate=10 burst=4 mode=delay", "rate=7 burst=4 mode=delay"],
            [],
            id="not-in-the-file-at-all",
        ),
    ],
)
def test_run_time_and_file(
    kept: dict[str, Limit | None], topics: list[str], lines: list[str]
) -> None:
    contracts, said = merge([IN_FILE], kept)
    assert [describe(each) for each in contracts] == topics
    assert said == lines


@pytest.mark.parametrize("text", ["[", '{"t": {"rate": -1, "burst": 1}}', "[1]"])
def test_a_spoilt_topics_file_is_one_line(far: Far, text: str) -> None:
    path = far.deployment.layout.topics
    path.write_text(text)
    with pytest.raises(SrtmError) as caught:
        far.kept.read()
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


# --- the commands -----------------------------------------------------------------------------


def run(far: Far, *words: str) -> Result:
    where = f"--deployment={far.deployment.data_path}"
    return CliRunner().invoke(topic_commands.topic, [*words, where], terminal_width=200)


def test_set_list_describe_and_delete(far: Far) -> None:
    done = run(far, "set", "t", "--rate", "1500", "--burst", "12", "--slo", "0.99@5ms")
    assert done.output == ("topic t: rate=1500 burst=12 mode=delay slo=0.99@5ms, over 3 brokers\n")
    rows = [line.split() for line in run(far, "list").output.splitlines()[1:]]
    assert rows[1][:7] == ["t", "deployment", "1,500", "12", "delay", "-", "0.99@5ms"]
    assert rows[1][7:] == ["9", "6", "0", "3", "yes", "4.00"]
    assert rows[2][:4] == ["unlimited", "deployment", "-", "-"]
    rows = [line.split() for line in run(far, "describe", "t").output.splitlines()]
    assert [row[:3] for row in rows[2:]] == [
        ["broker-1", "500", "4"],
        ["broker-2", "500", "4"],
        ["broker-3", "500", "4"],
        ["all", "1,500", "12"],
    ]
    assert run(far, "set", "t", "--slo", "none").output.endswith("mode=delay, over 3 brokers\n")
    assert run(far, "delete", "t").output == "topic t has no limit any more\n"
    assert far.shares() == [None] * 3


def test_json(far: Far) -> None:
    document = json.loads(run(far, "set", "t", "--rate=9", "--burst=3", "--json").output)
    assert document == {"topic": "t", "rate": 9, "burst": 3, "mode": "delay"}
    listed = json.loads(run(far, "list", "--json").output)
    assert [each["topic"] for each in listed["topics"]] == ["t", "unlimited"]
    assert listed["topics"][0]["rate"] == 9
    assert listed["topics"][0]["brokers"]["broker-2"]["burst"] == 1
    assert listed["silent"] == {}
    assert json.loads(run(far, "describe", "t", "--json").output)["burst"] == 3
    assert json.loads(run(far, "delete", "t", "--json").output) == {"topic": "t", "deleted": True}


def test_a_silent_broker_is_told_beside_what_the_others_say(far: Far) -> None:
    far.topics.change("t", {"rate": 9, "burst": 3})
    far.gateways["broker-1"].stop()
    done = run(far, "list")
    row = done.output.splitlines()[2].split()
    assert row[:7] == ["t", "deployment,", "last", "known", "9", "3", "delay"]
    assert row[9:13] == ["-"] * 4, "no sum of a part of the brokers"
    describe = [line.split() for line in run(far, "describe", "t").output.splitlines()]
    assert ["broker-1:", "no", "answer"] in [line[:3] for line in describe]
    assert describe[-1][:7] == ["all,", "by", "the", "deployment,", "last", "known", "9"]
    [topic, _] = json.loads(run(far, "list", "--json").output)["topics"]
    assert (topic["last_known"], topic["rate"], topic["offered"]) == (True, 9, None)
    far.gateways["broker-2"].stop()
    far.gateways["broker-3"].stop()
    assert run(far, "list").output.splitlines()[2].split()[4:6] == ["9", "3"], "as it was kept"
    assert isinstance(done.exception, UnavailableError)
    assert "the answer is incomplete: broker-1 does not answer" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["set", "t"],
            "give --rate, --burst, --mode, --max-wait, --slo, --batch, --batches, --fair, "
            "--lease-grace, --adapt or --migrate",
        ),
        (
            ["set", "t", "--rate=5", "--burst=3", "--fair=key"],
            'topic t: fair = "key" is for a topic of a Load Distributor',
        ),
        (
            ["set", "t", "--rate=5", "--burst=3", "--lease-grace=5m"],
            "topic t: lease-grace is for a topic of a Load Distributor",
        ),
        (["set", "t", "--rate=x", "--burst=3"], "topic t: rate: "),
        (["set", "t", "--rate=5", "--burst=3", "--slo=5ms"], "topic t: slo: "),
        (["set", "no topic", "--rate=5", "--burst=3"], "is not a topic name"),
        (["describe", "t"], "there is no topic t"),
        (["delete", "t"], "topic t has no limit"),
    ],
)
def test_a_slip_on_the_command_line(far: Far, words: list[str], said: str) -> None:
    done = run(far, *words)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


def test_a_deployment_is_found_by_data_path_and_by_file(far: Far, tmp_path: Path) -> None:
    file = tmp_path / "srtm.toml"
    file.write_text('[deployment]\ndata-path = "."\n[[broker]]\n')
    assert find(file) == find(tmp_path) == far.deployment


def test_no_deployment_and_one_that_has_ended(far: Far, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no deployment runs in .*none; start one with"):
        find(tmp_path / "none")
    far.deployment.model_copy(update={"pid": 2**22 + 1}).save()
    with pytest.raises(UnavailableError, match="has ended"):
        find(tmp_path)
