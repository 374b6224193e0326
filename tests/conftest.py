import os
import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.support.cases import cases
from tests.support.certificates import Authority
from tests.support.distributors import DistributorProcess, Starter, distributors_in
from tests.support.servers import STARTED, Servers, servers_in

if TYPE_CHECKING:
    from tests.support.kafka import Kafka

_CI = bool(os.environ.get("CI"))
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
KAFKA_LINES = 60
"""of Kafka's log that a failed test shows"""

# In CI a property tries the same cases each time: one that fails there fails for everybody, and a
# run that passes proves what the one before proved. At home it goes on looking, and keeps what it
# found; a case that failed becomes an @example of its test.
settings.register_profile(
    "srtm",
    deadline=None,
    print_blob=True,
    derandomize=_CI,
    max_examples=cases(200),
)
settings.load_profile("srtm")

# A shell starts what runs in its background with SIGINT ignored, and nohup its command with SIGHUP;
# all their children inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


LONGEST = (
    "correlation/test_groups",
    "correlation/test_stream_kafka",
    "correlation/test_whole_jobs",
    "autoscaler_live/test_run",
    "autoscaler_live/test_contract",
    "autoscaler_live/test_faults",
    "autoscaler_live/test_pool",
    "bridge/test_outages",
    "bridge/test_faults",
    "correlation/test_from_gateways",
    "docs/test_pages",
    "correlation/test_envelopes",
    "correlation/test_report",
    "bridge/test_kafka_to_nsq",
    "bridge/test_mirror",
    "bridge/test_groups",
    "benchmarks/test_faults",
    "testbed/test_testbed",
    "distributor/test_lease_faults",
    "client/test_with_distributor",
    "distributor/test_online_fitting",
    "gateway/test_full_disk",
    "deploy/test_distributor",
    "deploy/test_up",
    "migration/test_live",
    "distributor/test_capacity_command",
    "compat/test_go_nsq",
    "autoscaler_live/test_share",
    "autoscaler_live/test_outage",
    "demo/test_demo",
    "gateway/test_shares",
    "tb_adaptor/test_stranded",
    "tb_adaptor/test_live_penalty",
    "tests/test_imports",
    "tests/test_names",
    "tests/test_build",
)
"""files that take longest, first: at the end nobody waits for one of them alone"""

SERVERS = {
    "Spark": (
        "correlation/test_envelopes",
        "correlation/test_from_gateways",
        "correlation/test_groups",
        "correlation/test_propose",
        "correlation/test_report",
        "correlation/test_statistics",
        "correlation/test_stream",
        "correlation/test_stream_kafka",
        "correlation/test_trace",
        "correlation/test_what_if",
        "correlation/test_whole_jobs",
    ),
    "a Kafka": (
        "bridge/test_dead_letters",
        "bridge/test_distributor",
        "bridge/test_groups",
        "bridge/test_kafka_to_nsq",
        "bridge/test_mirror",
        "bridge/test_nsq_to_kafka",
        "bridge/test_outages",
        "bridge/test_secure",
        "journey/test_live",
    ),
    "the autoscaler's Kafka": (
        "autoscaler_live/test_consume",
        "autoscaler_live/test_contract",
        "autoscaler_live/test_faults",
        "autoscaler_live/test_run",
        "autoscaler_live/test_watch",
    ),
    "the parsed code": ("test_imports", "test_names"),
}
"""files whose tests share what is slow to start or to make, or that would take the CPU from each
other: one worker runs them all"""


class _FilesByServer(LoadFileScheduling):
    """Gives a worker whole files, and all files of one server to the same worker."""

    _server: ClassVar = {
        f"tests/{file}.py": name for name, files in SERVERS.items() for file in files
    }

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return self._server.get(file, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    return _FilesByServer(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each worker begins to collect elsewhere. The asserts of a file are rewritten by the first who
    imports it, and where nothing was kept of an earlier run, that takes longer than all else."""
    report = yield
    if isinstance(collector, pytest.Directory) and _WORKER:
        begin = len(report.result) * int(_WORKER.removeprefix("gw")) // _WORKERS
        report.result = report.result[begin:] + report.result[:begin]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first. Of all workers in one order, wherever they began."""
    order = {name: place for place, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> tuple[int, Path]:
        return order.get(f"{item.path.parent.name}/{item.path.stem}", len(order)), item.path

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What is missing is a skip at home and a failure in CI, but for what its kernel cannot do.
    A test that fails shows the end of its Kafka's log."""
    report = yield
    used = getattr(item, "funcargs", {}).get("kafka")
    if report.failed and used is not None:
        lines = used.server.log.read_text(errors="replace").splitlines()
        report.sections.append(("the end of Kafka's log", "\n".join(lines[-KAFKA_LINES:])))
    skipped = (
        report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple)
    )
    if skipped and _CI and "this kernel" not in report.longrepr[2]:
        report.outcome = "failed"
        report.longrepr = f"in CI nothing is left out: {report.longrepr[2]}"
    return report


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Real servers of this test, ended with it."""
    with servers_in(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Real servers that the tests of one file share."""
    with servers_in(tmp_path_factory.mktemp("servers")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Kafka"]:
    """A Kafka that the tests of a worker share; each has topics of its own."""
    from tests.support.kafka import kafka_in  # librdkafka, which few tests need

    with kafka_in(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who issues the certificates of these tests."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """What starts a distributor with flags of its own; all of them end with the test."""
    with distributors_in(tmp_path) as starter:
        yield starter


@pytest.fixture
def distributor(start: Starter) -> DistributorProcess:
    """A Load Distributor that leads, on a store of its own."""
    running = start()
    running.wait_leading()
    return running


@pytest.fixture(scope="session", autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    left: list[subprocess.Popen[bytes]] = [child for child in STARTED if child.poll() is None]
    for child in left:
        child.kill()
    assert not left, "a test left a server running"
