"""Brings a deployment up, and takes all of it down however that ends."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributor.cli.topic_file import TopicFile
from srtm.deploy.certificates import Effect, Judgement
from srtm.deploy.checks import asked_elsewhere, check_callers, faults_of
from srtm.deploy.children import children
from srtm.deploy.file import Plan, plan_of, read_plan
from srtm.deploy.kept_topics import KeptTopics, merge
from srtm.deploy.lock import DataPathLock
from srtm.deploy.nsqadmin import shortcomings
from srtm.deploy.placed_topics import PlacedTopics, placed_topics, read_placed
from srtm.deploy.programs import (
    Programs,
    check_nsqd_flags,
    find_programs,
    version_warning,
)
from srtm.deploy.supervisor import StopRequested, Supervisor
from srtm.deployment.admin import delete_topic, limit_of, topics_of
from srtm.deployment.document import (
    DeployedBroker,
    Deployment,
    Distributor,
    Lookupd,
    Nsqadmin,
)
from srtm.host.certificates import client_context
from srtm.host.clock import NS, monotonic_ns
from srtm.http.client import TlsFailed
from srtm.http.service import ClientFiles
from srtm.limits.contract import Contract
from srtm.text.address import require_free
from srtm.text.errors import UnavailableError, UsageError
from srtm.text.words import some

_REPORT_SECONDS = 15.0
"""a gateway reports before its doors open; where that failed, it tries again within 3 s"""
_OTHERS_REPORT_SECONDS = 60.0
"""other hosts are started at the same time, and may be slower"""
_POLL_SECONDS = 0.05


def deployed(plan: Plan) -> Deployment:
    """What `plan` becomes once this process has started it."""
    layout = plan.layout
    distributor, lookupd, nsqadmin = plan.distributor_at, plan.lookupd_at, plan.nsqadmin
    return Deployment(
        name=plan.deployment.name,
        pid=os.getpid(),
        data_path=layout.data_path,
        brokers=tuple(
            DeployedBroker(
                name=broker.name,
                tcp_address=broker.tcp_address.reachable,
                http_address=broker.http_address.reachable,
                https_address=broker.https_at and broker.https_at.reachable,
                admin_socket=str(layout.broker(broker.name).admin),
                nsqd_tcp_socket=str(layout.broker(broker.name).nsqd_tcp),
                nsqd_http_socket=str(layout.broker(broker.name).nsqd_http),
            )
            for broker in plan.brokers
        ),
        distributor=_reached(*distributor) if distributor else None,
        lookupd=Lookupd(tcp_address=lookupd[0], http_address=lookupd[1]) if lookupd else None,
        all_brokers=plan.elsewhere.brokers if plan.elsewhere else (),
        nsqadmin=Nsqadmin(http_address=nsqadmin.http_address.reachable) if nsqadmin else None,
    )


def _save(deployment: Deployment) -> None:
    """Raises UnavailableError, as on a full disk."""
    try:
        deployment.save()
    except OSError as error:
        where = deployment.layout.deployment
        raise UnavailableError(f"{where}: {error.strerror or error}") from None


def _reached(address: str, files: ClientFiles) -> Distributor:
    return Distributor(
        http_address=address,
        token_file=files.token,
        tls_root_ca_file=files.root_ca,
        tls_cert=files.cert,
        tls_key=files.key,
    )


class Up:
    """One run of `srtm up`. `run` does all of it in the calling thread."""

    def __init__(
        self,
        plan: Plan,
        say: Callable[[str], None],
        *,
        programs: Programs | None = None,
        topics: bool = True,
    ) -> None:
        self._plan = plan
        self._say = say
        self._programs = programs
        self._planned = plan.topics if topics else ()
        self._to_place = {each.topic for each in self._planned if each.publishers}
        self._distributor: PlacedTopics | None = None
        self._elsewhere: set[str] = set()  # topics that the distributor holds, as last heard
        self._kept = KeptTopics(plan.layout)
        self._supervisor: Supervisor | None = None
        self._stop_asked = False

    def ask_stop(self) -> None:
        """Ask for a stop, from a signal handler or another thread."""
        self._stop_asked = True
        if self._supervisor is not None:
            self._supervisor.ask_stop()

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the children that are alive, by name."""
        return self._supervisor.pids if self._supervisor else {}

    def check(self) -> list[Judgement]:
        """Check all that can be known before anything is started. Returns what is wrong with the
        certificates and tokens; raises SrtmError for anything else."""
        self._check_programs()
        for line in self._check_topics():
            self._say(line)
        self._placed()
        return [*faults_of(self._plan, time.time()), *asked_elsewhere(self._plan)]

    def run(self, on_up: Callable[[Deployment], None]) -> None:
        """Start, call `on_up`, watch until asked to stop, end every child. Raises SrtmError."""
        plan = self._plan
        programs = self._check_programs()
        for fault in faults_of(plan, time.time()):
            if fault.effect is Effect.STOPS:
                raise UsageError(str(fault))
            if fault.effect is Effect.FAILS:
                self._say(f"warning: {fault}")
        try:
            plan.layout.make(plan.broker_names)
        except OSError as error:
            raise UnavailableError(f"data-path {plan.layout.data_path}: {error}") from None
        lock = DataPathLock(plan.layout.lock)
        lock.acquire(self._say, lambda: self._stop_asked)
        try:
            for key, address in plan.addresses():
                require_free(address, key)
            self._supervise(programs, lock, on_up)
        finally:
            lock.release()

    def _check_programs(self) -> Programs:
        """They are there, and take what the file says of them. Raises SrtmError."""
        plan = self._plan
        programs = self._programs or find_programs(plan)
        warning = version_warning(programs.nsqd)
        if warning:
            self._say(warning)
        for broker in plan.brokers:
            if broker.nsqd_flags:
                check_nsqd_flags(programs.nsqd, broker.nsqd_flags, f"broker {broker.name}")
        check_callers(plan)
        self._check_nsqadmin()
        return programs

    def _check_nsqadmin(self) -> None:
        """Raises UsageError; says what it cannot do."""
        plan = self._plan
        if not plan.nsqadmin:
            return
        try:
            client_context(plan.nsqadmin.tls_files)
        except UsageError as error:
            raise UsageError(f"[nsqadmin]: {error}") from None
        brokers = {each.name: plan.gateway_options(each) for each in plan.brokers}
        for line in shortcomings(plan.nsqadmin, brokers):
            self._say(f"warning: {line}")

    def _supervise(
        self, programs: Programs, lock: DataPathLock, on_up: Callable[[Deployment], None]
    ) -> None:
        plan = self._plan
        for line in self._check_topics():
            self._say(line)
        placed = self._placed()
        deployment = deployed(plan)
        self._distributor = placed_topics(deployment)
        supervisor = Supervisor(
            children(plan, programs, self._split_topics), self._say, keep_open=[lock.fileno()]
        )
        self._supervisor = supervisor
        try:
            if self._stop_asked:
                return
            self._await_distributor()
            supervisor.start()
            self._forget_old_topics(deployment)
            if self._distributor:
                self._place(self._distributor, placed)
            _save(deployment)
            on_up(deployment)
            supervisor.watch()
        except StopRequested:
            pass
        finally:
            try:
                deployment.remove()
            finally:
                supervisor.stop()

    def _await_distributor(self) -> None:
        """One on another host, which may be starting too, says whose a topic is. Brokers do
        without it when it does not come. Raises StopRequested."""
        if self._distributor is None or self._plan.distributor is not None:
            return
        deadline_ns = monotonic_ns() + int(_OTHERS_REPORT_SECONDS * NS)
        while True:
            try:
                self._elsewhere = set(self._distributor.all())
                for fault in asked_elsewhere(self._plan):
                    self._say(f"warning: {fault}")
                return
            except UnavailableError as error:
                if self._stop_asked:
                    raise StopRequested from None
                if isinstance(error, TlsFailed) or monotonic_ns() > deadline_ns:
                    self._say(f"starting without the distributor: {error}")
                    return
            time.sleep(_POLL_SECONDS)

    def _forget_old_topics(self, deployment: Deployment) -> None:
        """A gateway's state file may still know limits that the file had in an earlier run."""
        wanted = {contract.topic for contract in self._split_topics()}
        for broker in deployment.brokers:
            try:
                leased = self._distributor.held_by(broker.name) if self._distributor else set()
            except UnavailableError:
                if self._plan.distributor is None:
                    return  # it is elsewhere, and away: they count until the next start
                raise
            for topic, row in topics_of(broker).items():
                if topic not in wanted | leased and limit_of(row):
                    delete_topic(broker, topic)

    def _place(self, distributor: PlacedTopics, placed: list[TopicFile]) -> None:
        """Raises StopRequested, or as the distributor does."""
        if placed:
            self._await_reports(distributor)
        for found in placed:
            self._say(distributor.place(found))
        not_placed = {contract.topic for contract in self._topics()} - self._to_place
        for name in sorted(self._elsewhere & not_placed):
            self._say(
                f"topic {name} is the distributor's, as it was registered there; its contract here "
                f"is not used: give it publishers, or delete it with srtm topic delete {name}"
            )

    def _await_reports(self, distributor: PlacedTopics) -> None:
        """Whoever reports too late gets no publishers now."""
        seconds = _OTHERS_REPORT_SECONDS if self._plan.elsewhere else _REPORT_SECONDS
        deadline_ns = monotonic_ns() + int(seconds * NS)
        while missing := set(self._plan.all_broker_names) - _up(distributor):
            if self._stop_asked:
                raise StopRequested
            if monotonic_ns() > deadline_ns:
                self._say(f"placing without {some(sorted(missing))}: no report came from there")
                return
            time.sleep(_POLL_SECONDS)

    def _topics(self) -> list[Contract]:
        return merge(self._planned, self._kept.read())[0]

    def _split_topics(self) -> list[Contract]:
        """The topics that gateways are started with: all but the distributor's."""
        if self._distributor:
            with contextlib.suppress(UnavailableError):  # a gateway may start while it is away
                self._elsewhere = set(self._distributor.all())
        placed = self._elsewhere | self._to_place
        return [contract for contract in self._topics() if contract.topic not in placed]

    def _placed(self) -> list[TopicFile]:
        return read_placed(self._planned, {each.topic: each for each in self._topics()})

    def _check_topics(self) -> list[str]:
        contracts, lines = merge(self._planned, self._kept.read())
        for contract in contracts:
            if contract.topic in self._to_place:
                continue
            try:
                contract.limit().share(self._plan.broker_count)
            except UsageError as error:
                raise UsageError(
                    f"{self._plan.layout.topics}: topic {contract.topic}: {error}"
                ) from None
        return lines


def _up(distributor: PlacedTopics) -> set[str]:
    try:
        return distributor.up()
    except UnavailableError:  # it does not lead yet
        return set()


class Running:
    """A deployment that `running` has brought up."""

    def __init__(self, up: Up, deployment: Deployment) -> None:
        self._up = up
        self.deployment = deployment
        self.brokers = deployment.brokers
        self.lookupd = deployment.lookupd

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the children that are alive, by name: `nsqlookupd`, `broker-1-nsqd`, ..."""
        return self._up.pids


@contextmanager
def running(
    spec: Path | str | Plan | Mapping[str, Any],
    *,
    say: Callable[[str], None] = lambda line: None,
    programs: Programs | None = None,
) -> Iterator[Running]:
    """A deployment for the time of a `with` block, for demos, tests and benchmarks.

    `spec` is a TOML file, its mapping (data-path then relative to the working folder) or a Plan.
    Raises SrtmError when it does not come up. A child that dies later is started again, and `say`
    hears of it.
    """
    up = Up(_plan(spec), say, programs=programs)
    started = threading.Event()
    came_up: list[Deployment] = []
    failure: list[BaseException] = []

    def on_up(deployment: Deployment) -> None:
        came_up.append(deployment)
        started.set()

    def work() -> None:
        try:
            up.run(on_up)
        except BaseException as error:  # handed to the thread that waits
            failure.append(error)
        finally:
            started.set()

    # A thread of its own for the whole life: children get SIGTERM when it ends.
    thread = threading.Thread(target=work, name="srtm-up", daemon=True)
    thread.start()
    try:
        started.wait()
        if came_up:
            yield Running(up, came_up[0])
    finally:
        up.ask_stop()
        thread.join()
    if failure:
        raise failure[0]


def _plan(spec: Path | str | Plan | Mapping[str, Any]) -> Plan:
    if isinstance(spec, Plan):
        return spec
    if isinstance(spec, Mapping):
        return plan_of(dict(spec), "deployment", Path.cwd())
    return read_plan(Path(spec))
