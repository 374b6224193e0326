"""Every request of the API in one table: the handlers, OpenAPI and its test are made from it."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from distributor import api, gateway_api, groups_api
from distributor.api_fields import MAX_LISTED
from distributor.control import (
    fittings,
    groupings,
    migrations,
    newcomers,
    placements,
    places,
    topics,
)
from distributor.control.service import Distributor
from distributor.errors import Forbidden
from distributor.grouping.proposals import Floor, Proposal
from srtm.http.callers import Caller, Role

PREFIX = "/v1"


@dataclass(frozen=True, slots=True)
class Call:
    """What came with one request: names from the path, the checked body, and where a list is to
    go on."""

    names: tuple[str, ...]
    body: Any
    after: str = ""

    @property
    def name(self) -> str:
        """The first of them: the broker's or the topic's."""
        return self.names[0]


@dataclass(frozen=True, slots=True)
class Route:
    """path: as OpenAPI writes it; statuses: refusals that are this request's own; broker: for
    which broker the request speaks."""

    method: str
    path: str
    role: Role
    summary: str
    body: type[BaseModel] | None
    answer: type[BaseModel]
    statuses: tuple[int, ...]
    call: Callable[[Distributor, Call], Awaitable[BaseModel]]
    broker: Callable[[Call], str] | None = None

    @property
    def is_stored(self) -> bool:
        """Can who stands by answer it, by what the leader has written?"""
        return self.method == "GET" and self.path not in _LIVE

    @property
    def is_change(self) -> bool:
        """Is it a change for the audit log? A gateway's report, which comes once a second, is
        none."""
        return self.method != "GET" and self.body is not gateway_api.Report

    def check_broker(self, caller: Caller, call: Call) -> None:
        """An agent speaks for the broker of its own name alone, so that no gateway reports for
        another. Raises Forbidden."""
        if self.broker is None or caller.role is not Role.AGENT:
            return
        broker = self.broker(call)
        if broker != caller.name:
            raise Forbidden(
                f"{caller.name} may not speak for broker {broker}: an agent speaks for the broker "
                f"of its own name; start the gateway with --broker-name={caller.name}, or give it "
                f"a token or certificate with the name {broker}"
            )

    @property
    def pattern(self) -> str:
        return pattern_of(self.path)


def pattern_of(path: str) -> str:
    """path: as OpenAPI writes it"""
    return PREFIX + re.sub(r"\{\w+\}", "([^/]+)", path)


async def _brokers(service: Distributor, _: Call) -> BaseModel:
    return api.Brokers(
        brokers=service.brokers.all(),
        warnings=service.warnings(),
    )


async def _register_broker(service: Distributor, call: Call) -> BaseModel:
    return await service.brokers.register(call.body)


async def _forget_broker(service: Distributor, call: Call) -> BaseModel:
    await service.brokers.forget(*call.names)
    return api.Done()


async def _report(service: Distributor, call: Call) -> BaseModel:
    return await service.report(call.name, call.body)


async def _desired(service: Distributor, call: Call) -> BaseModel:
    return service.desired(*call.names)


async def _drain(service: Distributor, call: Call) -> BaseModel:
    return await service.brokers.drain(call.name, call.body.drain)


async def _topics(service: Distributor, _: Call) -> BaseModel:
    return api.Topics(topics=[topics.shown(service, each) for each in sorted(service.state.topics)])


async def _put_topic(service: Distributor, call: Call) -> BaseModel:
    return await topics.put(service, call.name, call.body)


async def _put_topics(service: Distributor, call: Call) -> BaseModel:
    registered = await topics.put_many(service, call.body.topics)
    return api.TopicsRegistered(topics=len(call.body.topics), registered=registered)


async def _topic(service: Distributor, call: Call) -> BaseModel:
    return topics.shown(service, *call.names)


async def _delete_topic(service: Distributor, call: Call) -> BaseModel:
    await topics.delete(service, *call.names)
    return api.Done()


async def _register(service: Distributor, call: Call) -> BaseModel:
    registered = await service.registrations.register(call.name, call.body.publishers)
    await newcomers.place_newcomers(service, call.name)
    return api.Registered(registered=registered)


async def _publishers(service: Distributor, call: Call) -> BaseModel:
    return places.listed(service.state, call.name, call.after)


async def _publisher(service: Distributor, call: Call) -> BaseModel:
    return places.where(service.state, *call.names)


async def _delete_publisher(service: Distributor, call: Call) -> BaseModel:
    await service.delete_publisher(*call.names)
    return api.Done()


async def _place(service: Distributor, call: Call) -> BaseModel:
    return await placements.place(service, call.name, call.body)


async def _history(service: Distributor, call: Call) -> BaseModel:
    return api.Placements(placements=placements.history(service, *call.names))


async def _adaptation(service: Distributor, call: Call) -> BaseModel:
    return service.adaptation(*call.names)


async def _set_adaptation(service: Distributor, call: Call) -> BaseModel:
    return await service.set_adaptation(call.name, call.body)


async def _penalties(service: Distributor, _: Call) -> BaseModel:
    shown = [service.penalties.shown(name) for name, _ in service.penalties.all()]
    return api.PenaltiesShown(penalties=shown)


async def _penalty(service: Distributor, call: Call) -> BaseModel:
    return service.penalties.shown(*call.names)


async def _migrations(service: Distributor, call: Call) -> BaseModel:
    return migrations.show(service, *call.names)


async def _migrate(service: Distributor, call: Call) -> BaseModel:
    return await migrations.accept(service, *call.names)


async def _set_migration(service: Distributor, call: Call) -> BaseModel:
    return await migrations.put(service, call.name, call.body)


async def _groups(service: Distributor, call: Call) -> BaseModel:
    return await groupings.show(service, *call.names)


async def _propose(service: Distributor, call: Call) -> BaseModel:
    return await groupings.propose(service, call.name, call.body)


async def _decide(service: Distributor, call: Call) -> BaseModel:
    return await groupings.decide(service, call.name, call.body)


async def _set_floor(service: Distributor, call: Call) -> BaseModel:
    return await groupings.put_floor(service, call.name, call.body)


async def _fit(service: Distributor, call: Call) -> BaseModel:
    return await fittings.start(service, call.name, call.body)


async def _fitting(service: Distributor, call: Call) -> BaseModel:
    return fittings.show(service, *call.names)


async def _stop_fitting(service: Distributor, call: Call) -> BaseModel:
    return await fittings.stop(service, *call.names)


async def _current(service: Distributor, call: Call) -> BaseModel:
    return await placements.current(service, *call.names)


def _named(call: Call) -> str:
    return call.name


_LIVE = (
    "/brokers/{name}/desired",
    "/penalties",
    "/topics/{topic}/penalty",
    "/topics/{topic}/migrations",
)
"""paths of what only the leader knows"""
_READ, _AGENT, _OPERATOR = Role
ROUTES = (
    Route("GET", "/brokers", _READ, "All brokers.", None, api.Brokers, (), _brokers),
    Route("POST", "/brokers", _AGENT,
          "Register a broker, and tell what it holds; each gateway does so with each leader.",
          gateway_api.BrokerAsked, gateway_api.BrokerAnswer, (400, 409), _register_broker,
          lambda call: str(call.body.name)),
    Route("DELETE", "/brokers/{name}", _OPERATOR,
          "Say that a lost broker never comes back: its share of every topic is free.",
          None, api.Done, (404, 409), _forget_broker),
    Route("POST", "/brokers/{name}/report", _AGENT,
          "Report, and learn the whole desired state; this renews the lease.",
          gateway_api.Report, gateway_api.Desired, (400, 404), _report, _named),
    Route("GET", "/brokers/{name}/desired", _AGENT,
          "What the broker was told last; gives no lease.",
          None, gateway_api.Desired, (404,), _desired, _named),
    Route("POST", "/brokers/{name}/drain", _OPERATOR,
          "The next placement moves its publishers away; it takes no new ones.",
          api.DrainAsked, api.BrokerShown, (400, 404), _drain),
    Route("GET", "/topics", _READ, "All topics.", None, api.Topics, (), _topics),
    Route("POST", "/topics", _OPERATOR,
          "Register many topics, or change them, with their publishers: all of it or nothing.",
          api.TopicsAsked, api.TopicsRegistered, (400, 409), _put_topics),
    Route("PUT", "/topics/{topic}", _OPERATOR, "Register a topic, or change its contract or keys.",
          api.TopicAsked, api.TopicShown, (400, 409), _put_topic),
    Route("GET", "/topics/{topic}", _READ, "One topic.", None, api.TopicShown, (404,), _topic),
    Route("DELETE", "/topics/{topic}", _OPERATOR, "Forget a topic, its publishers and placements.",
          None, api.Done, (404,), _delete_topic),
    Route("GET", "/topics/{topic}/publishers", _READ,
          f"Its publishers, {MAX_LISTED:,} at once; ?after=ID goes on behind that one.",
          None, api.Publishers, (404,), _publishers),
    Route("POST", "/topics/{topic}/publishers", _AGENT,
          "Register one or many publishers; an id that is known gets the new key and rate, a new "
          "one of a placed topic a broker where there is room.",
          api.PublishersAsked, api.Registered, (400, 404), _register),
    Route("GET", "/topics/{topic}/publishers/{id}", _READ, "Where a publisher connects.",
          None, api.Place, (404,), _publisher),
    Route("DELETE", "/topics/{topic}/publishers/{id}", _OPERATOR, "Forget a publisher.",
          None, api.Done, (404,), _delete_publisher),
    Route("POST", "/topics/{topic}/placements", _OPERATOR,
          "Place the publishers, or show how (dry_run).",
          api.PlacementAsked, api.PlacementPlan, (400, 404, 409), _place),
    Route("GET", "/topics/{topic}/placements", _READ, "Placements that were applied, newest first.",
          None, api.Placements, (404,), _history),
    Route("GET", "/topics/{topic}/placements/current", _READ, "The placement in force.",
          None, api.PlacementPlan, (404,), _current),
    Route("GET", "/topics/{topic}/adaptation", _READ, "How its shares follow the traffic, and did.",
          None, api.AdaptationShown, (404,), _adaptation),
    Route("PUT", "/topics/{topic}/adaptation", _OPERATOR, "Say how its shares follow the traffic.",
          api.AdaptationAsked, api.AdaptationShown, (400, 404), _set_adaptation),
    Route("GET", "/penalties", _READ, "What splitting each shared topic costs in waiting, live.",
          None, api.PenaltiesShown, (), _penalties),
    Route("GET", "/topics/{topic}/penalty", _READ,
          "Its token wait beside that of the same messages in one unsplit bucket, live.",
          None, api.PenaltyShown, (404,), _penalty),
    Route("GET", "/topics/{topic}/migrations", _READ,
          "Who should leave a broker in trouble, who did, and why.",
          None, api.MigrationsShown, (404,), _migrations),
    Route("POST", "/topics/{topic}/migrations", _OPERATOR, "Carry out the proposal in force.",
          None, api.MigrationShown, (404, 409), _migrate),
    Route("PUT", "/topics/{topic}/migration", _OPERATOR,
          "Say whether publishers leave a broker in trouble.",
          api.MigrationAsked, api.MigrationsShown, (400, 404), _set_migration),
    Route("GET", "/topics/{topic}/groups", _READ,
          "Groups of publishers that were inferred from a trace: proposed, accepted, and where the "
          "keys of users say something else.",
          None, groups_api.GroupsShown, (404,), _groups),
    Route("PUT", "/topics/{topic}/groups", _OPERATOR,
          "Propose groups with their evidence; nobody moves. The same again is no fault.",
          Proposal, groups_api.GroupsTaken, (400, 404, 409), _propose),
    Route("POST", "/topics/{topic}/groups", _OPERATOR,
          "Accept or reject what is proposed, or forget what was accepted.",
          groups_api.DecisionAsked, groups_api.GroupsTaken, (400, 404, 409), _decide),
    Route("PUT", "/topics/{topic}/grouping", _OPERATOR,
          "Say what evidence a group needs to be accepted by itself.",
          Floor, groups_api.GroupsTaken, (400, 404), _set_floor),
    Route("POST", "/topics/{topic}/fitting", _OPERATOR,
          "Fit the topic by measurement: fewest brokers that keep its SLO. Goes on by itself.",
          api.FittingAsked, api.FittingShown, (400, 404, 409), _fit),
    Route("GET", "/topics/{topic}/fitting", _READ, "The fitting that goes on, or the last one.",
          None, api.FittingShown, (404,), _fitting),
    Route("DELETE", "/topics/{topic}/fitting", _OPERATOR,
          "Stop it; publishers that it holds get a broker by their rates.",
          None, api.FittingShown, (404, 409), _stop_fitting),
)  # fmt: skip

REPORT = next(each for each in ROUTES if each.body is gateway_api.Report)
REPORTS = "/brokers/{name}/reports"
"""GET with Upgrade: REPORTS_PROTOCOL: reports and answers by turns (see `reports.py`)"""
WATCH = "/topics/{topic}/watch"
"""GET ?id=A&id=B or POST {"ids": [...]}: lines of JSON without an end; for the role `WATCH_ROLE`"""
WATCH_ROLE = _READ
