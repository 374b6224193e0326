"""The topics that a deployment's Load Distributor holds. A topic has one owner: the distributor, if
it knows the topic; otherwise the deployment, which splits it evenly over its gateways."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from distributor.cli.adaptation import set_adaptation
from distributor.cli.topic_file import TopicFile, read_publishers, upload
from distributor.cli.topics import set_migration
from distributor.remote import Remote
from srtm.deploy.split import contract_with
from srtm.deployment.document import Deployment
from srtm.limits.contract import Contract
from srtm.text.errors import UsageError
from srtm.text.words import counted, number, some

if TYPE_CHECKING:
    from srtm.deploy.tables import TopicTable

_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class PlacedTopic:
    """contract: over all brokers; publishers: all; placed: those who have a broker; epoch: of the
    placement in force, None before the first; largest_batch: messages of the largest batch that was
    over a broker's b; 1: none."""

    contract: Contract
    publishers: int
    placed: int
    epoch: int | None
    largest_batch: int = 1

    def document(self) -> dict[str, int]:
        """What --json shows of it beside the contract."""
        return {
            "publishers": self.publishers,
            "placed": self.placed,
            "largest_batch": self.largest_batch,
        }


def read_placed(
    tables: Sequence["TopicTable"], contracts: Mapping[str, Contract]
) -> list[TopicFile]:
    """The topics of `tables` with publishers, and with a contract by now. Raises UsageError for a
    publishers' file that is wrong."""
    found = []
    for table in tables:
        if table.publishers and table.topic in contracts:
            keys = None if table.keys is None else list(dict.fromkeys(table.keys))
            publishers = read_publishers(table.publishers, keys)
            found.append(TopicFile(contracts[table.topic], keys, publishers))
    return found


def placed_topics(deployment: Deployment) -> "PlacedTopics | None":
    """The topics of the deployment's distributor; None where there is no distributor. Raises
    UsageError for a file that is wrong."""
    if deployment.distributor is None:
        return None
    return PlacedTopics(Remote(deployment.distributor.endpoint()))


class Changed(NamedTuple):
    """A contract as it was set; split: how, in words; offered: messages/s that the topic's
    publishers have declared."""

    contract: Contract
    split: str
    offered: float = 0.0


class PlacedTopics:
    """Asks the distributor. All of it raises UnavailableError where that does not answer, and
    UsageError for what it refuses."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def all(self) -> dict[str, PlacedTopic]:
        """All topics of the distributor, by name. Its answer is not waited for long: gateways are
        not started meanwhile."""
        found = self._remote.call("GET", "topics", timeout_seconds=_TIMEOUT_SECONDS)
        return {row["topic"]: _placed_topic(row) for row in found["topics"]}

    def one(self, topic: str) -> PlacedTopic | None:
        """The topic as the distributor has it; None where it is not the distributor's."""
        row = self._remote.find("topics", topic, timeout_seconds=_TIMEOUT_SECONDS)
        return None if row is None else _placed_topic(row)

    def change(self, topic: str, changes: Mapping[str, object]) -> Changed:
        """Change keys of its contract (None takes one away), or register it with one; shares shrink
        before others grow."""
        row = self._remote.find("topics", topic)
        shares = [] if row is None else [_placed_topic(row).contract.limit()]
        contract = contract_with(changes, topic, shares, "has no contract, as it is not registered")
        body = TopicFile(contract, row and row["keys"], []).topic_document()
        answer = self._remote.call("PUT", "topics", topic, body=body)
        return Changed(contract, "split by the distributor", answer["offered"])

    def adapt(self, topic: str, changes: Mapping[str, str]) -> dict[str, Any]:
        """Another way in which its shares follow the traffic."""
        return set_adaptation(self._remote, topic, changes)

    def adaptation(self, topic: str) -> dict[str, Any]:
        """How they do, and since when they are what they are."""
        found: dict[str, Any] = self._remote.call("GET", "topics", topic, "adaptation")
        return found

    def migrate(self, topic: str, mode: str) -> dict[str, Any]:
        """Whether its publishers leave a broker in trouble."""
        return set_migration(self._remote, topic, mode)

    def delete(self, topic: str) -> None:
        self._remote.call("DELETE", "topics", topic)

    def up(self) -> set[str]:
        """Brokers in contact."""
        return {row["name"] for row in self._brokers() if row["state"] == "up"}

    def held_by(self, broker: str) -> set[str]:
        """Topics of which it may hold a share."""
        return {name for row in self._brokers() if row["name"] == broker for name in row["topics"]}

    def place(self, found: TopicFile) -> str:
        """Register a topic and place those of its publishers that have no broker in contact;
        nobody else moves. Returns a line that says where they are."""
        upload(self._remote, [found])
        name = found.contract.topic
        plan = self._in_force(name)
        if plan is None or plan["unplaced"] or not self.up() >= set(_names(plan)):
            body = {"policy": "srtm", "keep": True}
            try:
                plan = self._remote.call("POST", "topics", name, "placements", body=body)
            except UsageError as error:
                return f"topic {name} is the distributor's, and not placed: {error}"
        line = f"topic {name} is the distributor's: " + ", ".join(
            f"{counted(share['publishers'], 'publisher')} on {share['name']} "
            f"(r = {number(share['r'])}, b = {number(share['b'])})"
            for share in plan["brokers"]
        )
        if plan["unplaced"]:
            line += f"; without a broker: {some(plan['unplaced'])}; {'; '.join(plan['reasons'])}"
        return line

    def _in_force(self, topic: str) -> Any:
        """The placement, None before the first one."""
        if self._remote.call("GET", "topics", topic)["epoch"] is None:
            return None
        return self._remote.call("GET", "topics", topic, "placements", "current")

    def _brokers(self) -> Any:
        return self._remote.call("GET", "brokers")["brokers"]


def _names(plan: Any) -> Collection[str]:
    return [share["name"] for share in plan["brokers"]]


def _placed_topic(row: dict[str, Any]) -> PlacedTopic:
    rules = ("slo", "mode", "max_wait", "batch", "batches", "fair", "lease_grace")
    given = {key: row.get(key) for key in ("topic", "rate", "burst", *rules)}
    values = {key: value for key, value in given.items() if value is not None}
    return PlacedTopic(
        contract=Contract.read(values, f"topic {row['topic']}"),
        publishers=row["publishers"],
        placed=row["placed"],
        epoch=row["epoch"],
        largest_batch=row["largest_batch"],
    )
