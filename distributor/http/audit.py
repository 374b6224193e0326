"""What the audit log says of a request: who asked for what, and what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from pydantic import BaseModel

from distributor import api, gateway_api, groups_api
from distributor.grouping.proposals import Floor, Proposal
from srtm.host.audit_log import audited
from srtm.http.callers import Caller

_RULES = ("slo", "mode", "max_wait", "batch", "batches", "fair", "lease_grace")
_CONTRACT = ("rate", "burst", *_RULES, "keys")
TOLD: dict[type[BaseModel], tuple[str, ...]] = {
    gateway_api.BrokerAsked: ("name", "tcp_address", "http_address", "capacity"),
    api.DrainAsked: ("drain",),
    api.TopicAsked: _CONTRACT,
    api.TopicOfMany: ("topic", *_CONTRACT, "publishers"),
    api.TopicsAsked: ("topics",),
    api.PublishersAsked: ("publishers",),
    api.PlacementAsked: ("policy", "dry_run", "keep", "groups"),
    api.AdaptationAsked: ("policy", "window", "every"),
    api.MigrationAsked: ("mode",),
    api.FittingAsked: ("mode", "meanwhile", "batch"),
    groups_api.DecisionAsked: ("decision", "number"),
    Proposal: ("groups",),
    Floor: ("mode", "lift", "q", "coincidences", "share"),
}
"""Fields of a body that are told; of a list its length. Nothing else of a body is logged."""


def entries(
    at: float, caller: Caller, address: str, request: str, body: BaseModel | None, status: int
) -> Iterator[Mapping[str, object]]:
    """One line; of many topics that were taken, one for each. at: Unix seconds; address: of the
    caller; request: method and path; status: of the answer"""
    bodies: Sequence[BaseModel | None] = [body]
    if isinstance(body, api.TopicsAsked) and status == HTTPStatus.OK:
        bodies = body.topics
    for each in bodies:
        told = () if each is None else TOLD.get(type(each), ())
        asked = {name: getattr(each, name) for name in told}
        yield audited(at, caller.name, str(caller.role), address, request, asked, status)
