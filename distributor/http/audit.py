"""What the audit log says of a request: who asked for what, and what came of it."""

from collections.abc import Mapping

from pydantic import BaseModel

from distributor import api, gateway_api, groups_api
from distributor.grouping.proposals import Floor, Proposal
from srtm.host.audit_log import audited
from srtm.http.callers import Caller

TOLD: dict[type[BaseModel], tuple[str, ...]] = {
    gateway_api.BrokerAsked: ("name", "tcp_address", "http_address", "capacity"),
    api.DrainAsked: ("drain",),
    api.TopicAsked: (
        "rate",
        "burst",
        "slo",
        "mode",
        "max_wait",
        "batch",
        "batches",
        "fair",
        "keys",
    ),
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


def entry(
    at: float, caller: Caller, address: str, request: str, body: BaseModel | None, status: int
) -> Mapping[str, object]:
    """One line. at: Unix seconds; address: of the caller; request: method and path; status: of the
    answer."""
    asked = {} if body is None else {name: getattr(body, name) for name in TOLD.get(type(body), ())}
    return audited(at, caller.name, str(caller.role), address, request, asked, status)
