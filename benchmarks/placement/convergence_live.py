"""Online fitting run live: real brokers on this host, publishers that follow their moves.

It shows that the searches end where they should with everything real in between. It judges nothing:
all brokers share this host's cores, so another broker brings buckets and connections, and no CPU.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count

from rich.table import Table

from benchmarks.harness.report import tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.world import brokers_up, distributor_address, distributor_of
from benchmarks.placement import fitting_model as model
from distributor.fitting import Mode
from distributor.remote import Remote
from srtm.client import Publisher
from srtm.deploy.up import Running
from srtm.deployment.admin import topics_of
from srtm.limits.slo import SLO
from srtm.nsq.commands import sub
from srtm.nsq.connection import Connection
from srtm.text.address import Address
from srtm.text.errors import SrtmError

PUBLISHERS = 300
SIZES = (5, 15, 30)
BROKERS = ("b0", "b1", "b2", "b3")
NOISE_FACTOR = 3.0
"""The target over the p99 of one broker without a contract that matters, measured just before"""
_NOISE_SECONDS = 10.0
_NO_CONTRACT = {"rate": 1e6, "burst": 1e6, "slo": "0.99@1s"}
_PLACEMENTS = ("topics", model.TOPIC, "placements")
_CAPACITY = 10_000  # messages/s: by rate alone one broker holds the topic
_UNANSWERED = 2 * int(model.BATCH)
"""of a publisher; what is due beyond is dropped: a publisher that is held does not save it up"""
_MESSAGE_BYTES = 100
_ASK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Live:
    """One topic, fitted from an empty model. dropped: messages that were due and not sent."""

    arrivals: str
    group_size: int
    target_seconds: float
    mode: str
    state: str
    brokers: int
    rounds: int
    seconds: float
    sent: int
    dropped: int
    reasons: list[str]


def live(session: Session, arrivals: tuple[str, ...]) -> Iterator[Live]:
    for kind in arrivals:
        for size in SIZES:
            target: float | None = None
            for mode in Mode:
                session.step(f"live: {kind}, groups of {size}, {mode}")
                load = model.workload(size, kind, 0, PUBLISHERS)
                folder = session.folder / f"{kind}-{size}-{mode}"
                with brokers_up(folder, BROKERS, capacity=_CAPACITY) as deployment:
                    _register(distributor_of(deployment), load)
                    found = asyncio.run(_fitted(deployment, load, mode, target))
                target = found.target_seconds
                yield found


def live_table(runs: list[Live]) -> Table:
    return tabulate(
        f"live: {PUBLISHERS} publishers, {len(BROKERS)} brokers on this host",
        runs,
        ("arrivals", lambda run: run.arrivals),
        ("group size", lambda run: run.group_size),
        ("p99 target, ms", lambda run: run.target_seconds * 1e3),
        ("mode", lambda run: run.mode),
        ("ended", lambda run: run.state),
        ("k", lambda run: run.brokers),
        ("rounds", lambda run: run.rounds),
        ("seconds", lambda run: run.seconds),
        ("dropped", lambda run: f"{run.dropped / (run.sent + run.dropped):.1%}"),
    )


def _register(remote: Remote, load: model.Workload) -> None:
    remote.call("PUT", "topics", model.TOPIC, body=_NO_CONTRACT)
    rows = [{"id": each.id, "key": each.key, "rate": each.rate} for each in load.publishers]
    remote.call("POST", "topics", model.TOPIC, "publishers", body={"publishers": rows})


async def _fitted(
    deployment: Running, load: model.Workload, mode: Mode, target: float | None
) -> Live:
    """target: seconds; None: from what one broker does."""
    address = distributor_address(deployment)
    remote = distributor_of(deployment)
    async with AsyncExitStack() as stack:
        for broker in deployment.brokers:
            task = asyncio.create_task(_keep_a_channel(broker.tcp_address))
            stack.callback(task.cancel)
        publishers = [
            await stack.enter_async_context(
                Publisher(
                    model.TOPIC,
                    id=each.id,
                    distributor=address,
                    max_in_flight=_UNANSWERED,
                    close_seconds=0.1,
                )
            )
            for each in load.publishers
        ]
        sender = _Sender(load, publishers)
        sending = asyncio.create_task(sender.send())
        stack.callback(sending.cancel)
        if target is None:
            await asyncio.to_thread(remote.call, "POST", *_PLACEMENTS, body={})
            await asyncio.sleep(_NOISE_SECONDS)
            target = NOISE_FACTOR * await asyncio.to_thread(_p99, deployment)
        slo = str(SLO(0.99, target))
        topic = {"rate": load.contract.rate, "burst": load.burst, "slo": slo}
        await asyncio.to_thread(remote.call, "PUT", "topics", model.TOPIC, body=topic)
        body = {"mode": str(mode), "batch": model.BATCH}
        path = ("topics", model.TOPIC, "fitting")
        done = await asyncio.to_thread(remote.call, "POST", *path, body=body)
        while done["state"] == "running":
            if sending.done():  # brokers without messages would be judged
                sending.result()
                raise SrtmError(f"live: the load ended in round {done['round']} of the fitting")
            await asyncio.sleep(_ASK_SECONDS)
            done = await asyncio.to_thread(remote.call, "GET", *path)
    return Live(
        load.arrivals,
        load.group_size,
        target,
        str(mode),
        done["state"],
        len(done["brokers"]),
        done["round"],
        done["seconds"],
        sender.sent,
        sender.dropped,
        done["reasons"],
    )


def _p99(deployment: Running) -> float:
    """Seconds; of the worst broker, over what it has measured."""
    rows = [topics_of(broker).get(model.TOPIC, {}) for broker in deployment.brokers]
    measured = [row.get("broker_latency", {}).get("p99") for row in rows]
    return max(float(each) for each in measured if each is not None)


class _Sender:
    """Each group's publishers send their batches at the group's instants, whatever the answers."""

    def __init__(self, load: model.Workload, publishers: list[Publisher]) -> None:
        size = load.group_size
        self._load = load
        self._groups = [publishers[at : at + size] for at in range(0, len(publishers), size)]
        self._unanswered = dict.fromkeys(publishers, 0)
        self._numbers = count()
        self.sent = self.dropped = 0

    async def send(self) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        for at, group in zip(self._load.times.tolist(), self._load.groups.tolist(), strict=True):
            wait = began_at + at - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            for publisher in self._groups[group]:
                await self._batch(publisher)

    async def _batch(self, publisher: Publisher) -> None:
        size = int(model.BATCH)
        if not publisher.address or self._unanswered[publisher] + size > _UNANSWERED:
            self.dropped += size
            return
        self._unanswered[publisher] += size
        self.sent += size
        for _ in range(size):
            body = b"%0*d" % (_MESSAGE_BYTES, next(self._numbers))  # no two alike
            receipt = await publisher.send(body)
            receipt.add_done_callback(lambda done: self._answered(publisher, done))

    def _answered(self, publisher: Publisher, done: "asyncio.Future[None]") -> None:
        self._unanswered[publisher] -= 1
        if not done.cancelled():
            done.exception()  # its outcome is not asked for


async def _keep_a_channel(address: Address) -> None:
    """A topic without a channel keeps its messages, on disk from 10,000 on. This one takes nothing:
    what finds its memory queue full is dropped, and costs no CPU."""
    reader, writer = await asyncio.open_connection(*address)
    v2 = Connection(writer.write, {}, 1 << 20)
    writer.write(sub(model.TOPIC.encode(), b"kept#ephemeral"))
    while data := await reader.read(1 << 16):
        v2.receive(data)
