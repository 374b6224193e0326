"""The topics of a running deployment: set, deleted and shown over all of its brokers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from srtm.deploy.kept_topics import KeptTopics, describe
from srtm.deploy.placed_topics import Changed, PlacedTopic, placed_topics
from srtm.deploy.split import Step, change, contract_with
from srtm.deployment.admin import Row, delete_topic, limit_of, put_topic, topics_of
from srtm.deployment.document import DeployedBroker, Deployment
from srtm.limits.contract import Limit
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from srtm.text.words import counted

DISTRIBUTOR = "distributor"
"""its name among those that do not answer"""


@dataclass(frozen=True)
class TopicStatus:
    """One topic over the brokers that answered.

    placed: what the distributor says of it, where it is the distributor's and answers
    silent: names of those that do not answer, brokers and distributor
    kept:   its limit over all brokers, as it was set at run time
    others: how many brokers other hosts of the deployment have
    """

    topic: str
    brokers: dict[str, Row]
    placed: PlacedTopic | None = None
    silent: frozenset[str] = frozenset()
    kept: Limit | None = None
    others: int = 0

    @property
    def owner(self) -> str:
        """Who holds the contract, and gives the brokers their shares of it. While the distributor
        does not answer, gateways know what it has told them."""
        if self.placed or self._whole or self.rule("placed_elsewhere"):
            return DISTRIBUTOR
        return "deployment"

    @property
    def is_last_known(self) -> bool:
        """Who could say how things are now does not answer."""
        return bool(self.silent)

    @property
    def _whole(self) -> dict[str, float] | None:
        """The distributor's contract as gateways were told it."""
        return next((row["contract"] for row in self.brokers.values() if "contract" in row), None)

    def total(self, key: str) -> float | None:
        """The sum over the brokers; None where one of them has no such figure, or is silent."""
        if self.silent - {DISTRIBUTOR}:
            return None
        values = [row.get(key) for row in self.brokers.values()]
        numbers = [value for value in values if isinstance(value, int | float)]
        return sum(numbers) if len(numbers) == len(values) else None

    def rule(self, key: str) -> Any:
        """mode, max-wait, slo, batch, batches, fair or lease-grace, which all brokers share."""
        return next((row[key] for row in self.brokers.values() if row.get(key)), None)

    @property
    def contract(self) -> dict[str, Any]:
        """The contract as its owner has it: that of a topic of the deployment is what the shares
        add up to or, while somebody is silent, the limit that was set at run time, if one was."""
        rules = ("mode", "max-wait", "slo", "batch", "batches", "fair", "lease-grace")
        if self.placed is not None:
            found = self.placed.contract.document()
            return {key: found.get(key) for key in ("rate", "burst", *rules)}
        if self.owner == "deployment" and self.silent and self.kept:
            found = self.kept.document()
            return {key: found.get(key) for key in ("rate", "burst", *rules)}
        sums: dict[str, Any] = self._whole or {key: self._split(key) for key in ("rate", "burst")}
        return {**sums, **{key: self.rule(key) for key in rules}}

    def _split(self, key: str) -> float | None:
        """The whole of a figure that is split evenly: a broker that is silent has as much as each
        of the others. None for a topic of the distributor, of which nobody has told the whole."""
        away = len(self.silent - {DISTRIBUTOR}) + self.others
        values = [row[key] for row in self.brokers.values() if key in row]
        if self.owner == "distributor" or not values or len(values) < len(self.brokers):
            return None
        return float(f"{sum(values) * (len(values) + away) / len(values):.12g}")

    @property
    def worst_wait_p99_seconds(self) -> float | None:
        """The p99 of the token wait at the broker where it is longest: percentiles of several do
        not add up."""
        waits = [(row.get("token_wait") or {}).get("p99") for row in self.brokers.values()]
        return max((wait for wait in waits if wait is not None), default=None)

    def document(self) -> dict[str, Any]:
        """The topic as --json shows it."""
        sums = ("offered", "admitted", "rejected", "waiting")
        placed = self.placed
        return {
            "topic": self.topic,
            "owner": self.owner,
            "last_known": self.is_last_known,
            **self.contract,
            **({} if placed is None else placed.document()),
            **{key: self.total(key) for key in sums},
            "throttled": any(row.get("throttled") for row in self.brokers.values()),
            "worst_token_wait_p99": self.worst_wait_p99_seconds,
            "brokers": self.brokers,
        }


@dataclass(frozen=True)
class Report:
    """All topics, and why a broker is not among those that answered."""

    topics: tuple[TopicStatus, ...]
    silent: dict[str, str]

    def document(self) -> dict[str, Any]:
        return {"topics": [each.document() for each in self.topics], "silent": self.silent}


class Topics:
    """Commands on the topics of one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._brokers = deployment.brokers
        self._distributor = placed_topics(deployment)
        self._kept = KeptTopics(deployment.layout)
        self._has_other_hosts = bool(deployment.all_brokers)
        self._other_brokers = len(set(deployment.all_brokers) - {b.name for b in self._brokers})

    def report(self) -> Report:
        """Every topic on every broker that answers, and those that only the distributor knows."""
        rows: dict[str, dict[str, Row]] = {}
        silent = {}
        placed: dict[str, PlacedTopic] = {}
        if self._distributor:
            try:
                placed = self._distributor.all()
            except UnavailableError as error:
                silent[DISTRIBUTOR] = str(error)
        for broker in self._brokers:
            try:
                for topic, row in topics_of(broker).items():
                    rows.setdefault(topic, {})[broker.name] = row
            except UnavailableError as error:
                silent[broker.name] = str(error)
        kept = {name: limit for name, limit in self._kept.read().items() if limit} if silent else {}
        return Report(
            tuple(
                TopicStatus(
                    topic,
                    rows.get(topic, {}),
                    placed.get(topic),
                    frozenset(silent),
                    kept.get(topic),
                    self._other_brokers,
                )
                for topic in sorted(rows.keys() | placed.keys() | kept.keys())
            ),
            silent,
        )

    def placed(self, topic: str) -> PlacedTopic | None:
        """The topic as the distributor has it; None for one that is not the distributor's. Raises
        UnavailableError where that does not answer: nothing is changed without knowing whose the
        topic is."""
        if self._distributor is None:
            return None
        try:
            return self._distributor.one(topic)
        except UnavailableError as error:
            raise UnavailableError(
                f"topic {topic} was not changed: only the distributor can tell whether it holds "
                f"the topic ({error})"
            ) from None

    def change(self, topic: str, changes: Mapping[str, object]) -> Changed:
        """Change keys of its contract (None takes one away), and keep it. The distributor splits
        its own topics as they are placed; all others are split evenly.

        The sum of the shares stays within old and new contract at every instant: nothing grows
        before every shrink was acknowledged, and what a gateway would be restarted with never
        exceeds what the others leave it. Raises UsageError, UnavailableError or SrtmError that
        says which broker failed and what is left.
        """
        with self._kept.changing():
            if self._distributor and self.placed(topic):
                changed = self._distributor.change(topic, changes)
                if not self._has_other_hosts:  # there the file says it at the next start
                    self._kept.keep(topic, changed.contract.limit())
                return changed
            self._refuse_other_hosts(topic)
            current = self._current(topic)
            contract = contract_with(changes, topic, current.values(), "has no limit yet")
            if contract.needs_distributor:
                raise UsageError(f"topic {topic}: {contract.needs_distributor}")
            limit = contract.limit()
            plan = change(current, limit.share(len(self._brokers)))
            if plan.shrinks:
                self._kept.keep(topic, _least(current.values(), limit))
            self._apply(topic, plan.shrinks, "no share was raised")
            self._kept.keep(topic, limit)
            self._apply(topic, plan.grows, "some shares are still lower than asked for")
        return Changed(contract, f"over {counted(len(self._brokers), 'broker')}")

    def adapt(self, topic: str, changes: Mapping[str, str]) -> dict[str, Any]:
        """How the shares of a topic that the distributor holds follow its traffic. Raises as
        `change` does."""
        if self._distributor is None or not self.placed(topic):
            raise UsageError(
                f"topic {topic} is split evenly, and stays so: only the shares of a topic that the "
                "distributor holds follow the traffic; srtm topic register hands the topic to it"
            )
        return self._distributor.adapt(topic, changes)

    def migrate(self, topic: str, mode: str) -> dict[str, Any]:
        """Whether its publishers leave a broker in trouble. Raises as `change` does."""
        if self._distributor is None or not self.placed(topic):
            raise UsageError(
                f"topic {topic} is split evenly: only publishers of topics that the distributor "
                "holds can be moved; srtm topic register hands the topic to it"
            )
        return self._distributor.migrate(topic, mode)

    def adaptation(self, status: TopicStatus) -> dict[str, Any] | None:
        """How the distributor adapts the topic's shares; None for a topic that is not the
        distributor's."""
        if self._distributor is None or status.placed is None:
            return None
        return self._distributor.adaptation(status.topic)

    def delete(self, topic: str) -> None:
        """Take the limit away on every broker, and keep it away; the distributor forgets a topic of
        its own, with publishers and placement. Raises as `change` does."""
        with self._kept.changing():
            if self._distributor and self.placed(topic):
                self._distributor.delete(topic)
                if not self._has_other_hosts:
                    self._kept.keep(topic, None)
                return
            self._refuse_other_hosts(topic)
            limited = any(self._current(topic).values())
            if not limited and self._kept.read().get(topic) is None:
                raise UsageError(f"topic {topic} has no limit; srtm topic list shows those that do")
            self._kept.keep(topic, None)
            for done, broker in enumerate(self._brokers):
                try:
                    delete_topic(broker, topic)
                except SrtmError as error:
                    progress = f"after {done} of {len(self._brokers)} deletions"
                    raise self._halted(error, topic, broker, progress) from None

    def _refuse_other_hosts(self, topic: str) -> None:
        """Their brokers have shares too, and nobody here reaches their admin doors."""
        if self._has_other_hosts:
            raise UsageError(
                f"topic {topic} is split evenly over brokers of several hosts: change it in the "
                "file, after srtm testbed down and before up; only a topic with publishers can be "
                "changed while the brokers run"
            )

    def _current(self, topic: str) -> dict[str, Limit | None]:
        """The limit of each broker, by name. Raises UnavailableError where one does not answer:
        nothing is changed half-blind."""
        current: dict[str, Limit | None] = {}
        for broker in self._brokers:
            try:
                row = topics_of(broker).get(topic)
            except UnavailableError as error:
                raise UnavailableError(
                    f"topic {topic} was not changed on any broker: {broker.name} does not answer "
                    f"({error})"
                ) from None
            current[broker.name] = limit_of(row) if row else None
        return current

    def _apply(self, topic: str, steps: Sequence[Step], left: str) -> None:
        brokers = {broker.name: broker for broker in self._brokers}
        for done, step in enumerate(steps):
            broker = brokers[step.broker]
            try:
                put_topic(broker, topic, step.limit)
            except SrtmError as error:
                progress = f"after {done} of {len(steps)} changes"
                raise self._halted(error, topic, broker, progress, f"{left}; ") from None

    def _halted(
        self, error: SrtmError, topic: str, failed: DeployedBroker, progress: str, left: str = ""
    ) -> SrtmError:
        """One line: who failed, and what every broker has now."""
        state = []
        for broker in self._brokers:
            try:
                row = topics_of(broker).get(topic)
                limit = limit_of(row) if row else None
                state.append(f"{broker.name}: {describe(limit) if limit else 'no limit'}")
            except SrtmError:
                state.append(f"{broker.name}: unknown")
        return type(error)(
            f"topic {topic}: {progress} {failed.name} failed ({error}); "
            f"{left}now {', '.join(state)}; run the command again"
        )


def _least(shares: Collection[Limit | None], limit: Limit) -> Limit:
    """What a restart may hand out in the middle of a change: the least that any broker is led
    through, times the brokers."""
    parts = len(shares)
    held = [share for share in shares if share]
    return limit.model_copy(
        update={
            "rate": min([limit.rate, *(parts * each.rate for each in held)]),
            "burst": min([limit.burst, *(parts * each.burst for each in held)]),
        }
    )
