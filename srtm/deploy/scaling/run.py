"""What is decided about brokers, carried out: they are started, measured, drained and ended."""

import logging
from typing import Any

from distributor.capacity.rounds import Rounds, searched, settings_for
from distributor.capacity.search import Search, least_rate
from distributor.remote import Remote
from srtm.deploy.scaling.decision import BrokerRoom, Decision, Scaler, Seen, Step, TopicNeed
from srtm.deploy.scaling.file import ScaleFile
from srtm.deploy.scaling.launcher import Launcher
from srtm.host.clock import NS, monotonic_ns
from srtm.http.nsqd import stats
from srtm.text.errors import SrtmError, UsageError
from srtm.text.words import counted, rate

log = logging.getLogger("srtm.broker.scale")

_ROUND_SECONDS = 2.0
_PUBLISHERS = 50
_MOST = 1_000_000  # messages/s
_AGAIN_SECONDS = 60.0
"""after a start that came to nothing"""


class Run:
    """One controller of one file; `step` looks once and does what is decided."""

    def __init__(self, file: ScaleFile, remote: Remote) -> None:
        self._file = file
        self._remote = remote
        self._launcher = Launcher(file)
        self._scaler = Scaler(file.scale.bounds)
        self._wait_until = 0.0
        self._doors: dict[str, tuple[str, str]] = {}
        self._tried: tuple[object, ...] = ()

    def would(self) -> Decision:
        """What `step` would decide now, where nobody can be placed as things are. Raises as it
        does."""
        return self._scaler.decide(self._look(monotonic_ns() / NS))

    def step(self) -> Decision:
        """Raises SrtmError where the distributor does not answer, or refuses."""
        at = monotonic_ns() / NS
        seen = self._look(at)
        for name, why in self._launcher.died().items():
            log.warning("%s: %s", name, why)
            self._came_to_nothing(name, seen)
        self._measure(seen)
        self._forget(seen)
        if placed := self._place(seen):
            return Decision(Step.PLACE, "", f"{counted(placed, 'publisher')} got a broker")
        decision = self._scaler.decide(seen)
        if decision.step is Step.START and at < self._wait_until:
            why = f"{decision.reason}; the last start came to nothing"
            return Decision(Step.NONE, "", why)
        return self._carried_out(decision, seen)

    def _look(self, at: float) -> Seen:
        running = self._launcher.running()
        brokers = self._remote.call("GET", "brokers")["brokers"]
        self._doors = {b["name"]: (b["tcp_address"], b["http_address"]) for b in brokers}
        topics = self._remote.call("GET", "topics")["topics"]
        # The first placement of a topic is a person's decision.
        placed = tuple(self._topic(each) for each in topics if each["epoch"] is not None)
        shown = tuple(self._broker(each, running) for each in brokers)
        return Seen(at, shown, placed, running, self._launcher.known())

    def _topic(self, found: dict[str, Any]) -> TopicNeed:
        name, publishers, placed = found["topic"], found["publishers"], found["placed"]
        serving = 0
        if placed < publishers:
            history = self._remote.call("GET", "topics", name, "placements")["placements"]
            serving = len(history[0]["brokers"]) if history else 0
        most = int(found["burst"] // max(1, found["batch"]))
        return TopicNeed(name, publishers, placed, found["offered"], serving, most)

    def _broker(self, found: dict[str, Any], running: frozenset[str]) -> BrokerRoom:
        name, state = found["name"], found["state"]
        is_leaving = name in running and state == "draining" and not found["allocated"]
        return BrokerRoom(
            name,
            state,
            found["capacity"],
            found["allocated"],
            tuple(found["topics"]),
            self._waiting(name) if is_leaving else None,
        )

    def _waiting(self, name: str) -> int | None:
        """Messages that its nsqd still has for consumers; None where it does not tell."""
        try:
            document = stats(self._launcher.nsqd_door(name))
        except SrtmError:
            return None
        parts = [part for topic in document["topics"] for part in (topic, *topic["channels"])]
        keys = ("depth", "in_flight_count", "deferred_count")
        return sum(int(part.get(key, 0)) for part in parts for key in keys)

    # --- what is done -----------------------------------------------------------------------------

    def _carried_out(self, decision: Decision, seen: Seen) -> Decision:
        """The decision, with what became of it."""
        name = decision.broker
        if decision.step is Step.START:
            taken = {*seen.running, *(b.name for b in seen.brokers)}
            name = name or self._launcher.free_name(taken)
            at = self._launcher.start(name)
            return Decision(Step.START, name, f"at {at}: {decision.reason}")
        if decision.step is Step.END:
            was_lost = any(each.name == name and each.state == "lost" for each in seen.brokers)
            self._launcher.end(name, seen.at, for_good=not was_lost)
            self._came_to_nothing(name, seen)
        elif decision.step is Step.KEEP:
            self._drain(name, False)
        elif decision.step is Step.DRAIN and (why := self._not_given_up(name, seen)):
            return Decision(Step.KEEP, name, why)
        return decision

    def _came_to_nothing(self, name: str, seen: Seen) -> None:
        """The next start waits for a while, where this one was never in contact."""
        if all(each.name != name for each in seen.brokers):
            self._wait_until = seen.at + _AGAIN_SECONDS

    def _not_given_up(self, name: str, seen: Seen) -> str:
        """Drain it, and place its publishers on the others. Where they do not fit there all of it
        is undone, and this says why."""
        (broker,) = [each for each in seen.brokers if each.name == name]
        placed = {each.name for each in seen.topics if each.publishers}
        topics = [each for each in broker.topics if each in placed]
        self._drain(name, True)
        try:
            # All together may not fit where each alone does: each is asked for once more.
            for dry_run in (True, False):
                for each in topics:
                    if self._placed(each, dry_run=True)["unplaced"]:
                        raise UsageError(f"the others have no room for what it has of {each}")
                    if not dry_run:
                        self._placed(each, dry_run=False)
        except UsageError as error:
            self._scaler.refused(name, seen.at)
            self._drain(name, False)
            return str(error)
        return ""

    def _drain(self, name: str, drain: bool) -> None:
        self._remote.call("POST", "brokers", name, "drain", body={"drain": drain})

    def _placed(self, topic: str, dry_run: bool) -> Any:
        """The topic's placement, in which nobody moves who has a broker that takes publishers."""
        body = {"policy": "srtm", "keep": True, "dry_run": dry_run}
        return self._remote.call("POST", "topics", topic, "placements", body=body)

    def _place(self, seen: Seen) -> int:
        """Give publishers without a broker one, where there is room by now; to how many."""
        up = [each for each in seen.brokers if each.state == "up"]
        tried, self._tried = self._tried, (seen.brokers, seen.topics)
        if tried == self._tried or not any(each.allocated < each.capacity for each in up):
            return 0  # a placement of many publishers is no small question
        placed = 0
        for topic in seen.topics:
            if not topic.without:
                continue
            try:
                found = topic.without - len(self._placed(topic.name, dry_run=True)["unplaced"])
                if found > 0:
                    self._placed(topic.name, dry_run=False)
                    placed += found
            except UsageError as error:  # it is fitted, or shares are handed over
                log.info("topic %s: %s", topic.name, error)
        return placed

    def _forget(self, seen: Seen) -> None:
        """Those that are over; what they had of a topic without publishers is free then."""
        for each in seen.brokers:
            is_out = each.state == "lost" and not each.allocated and each.name not in seen.running
            if is_out and self._launcher.over(each.name):
                self._remote.call("DELETE", "brokers", each.name)

    def _measure(self, seen: Seen) -> None:
        """Tell the distributor what each new broker of ours holds, where its file does not."""
        for broker in seen.brokers:
            if broker.name in seen.running and broker.state == "up" and not broker.capacity:
                held = self._file.scale.capacity or self._held(broker.name)
                tcp, http = self._doors[broker.name]
                reached = {"name": broker.name, "tcp_address": tcp, "http_address": http}
                self._remote.call("POST", "brokers", body={**reached, "capacity": held})
                log.warning("%s holds %s", broker.name, rate(held))

    def _held(self, name: str) -> float:
        """messages/s that it holds within the SLO. Raises SrtmError for one that holds none."""
        tcp, http = self._doors[name]
        slo = self._file.scale.slo
        assert slo is not None
        least = least_rate(slo.allowed_late_share, _ROUND_SECONDS)
        search = Search(least, least, _MOST)
        log.warning("%s is measured within %s", name, slo)
        with Rounds(settings_for(tcp, _ROUND_SECONDS, _PUBLISHERS), http, slo) as rounds:
            found, _ = searched(search, lambda rate: rounds.measure(rate, None))
        if not found.rate:
            raise SrtmError(f"{name} holds no {least}/s within {slo}: give a longer one")
        return float(found.rate)
