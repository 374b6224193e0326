"""How the shares of a topic change so that their sum stays within the contract at every instant."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from srtm.limits.contract import Contract, Limit
from srtm.text.errors import UsageError


@dataclass(frozen=True, slots=True)
class Step:
    """Give one broker this limit."""

    broker: str
    limit: Limit


@dataclass(frozen=True, slots=True)
class Change:
    """`shrinks` first, all of them acknowledged, and only then `grows`."""

    shrinks: tuple[Step, ...]
    grows: tuple[Step, ...]


def change(current: Mapping[str, Limit | None], share: Limit) -> Change:
    """Lead every broker from its limit (None: it has none yet) to `share`.

    After the shrinks no broker has more than its share in either dimension, so the sum is within
    the new contract; before the grows no broker has more than it had, so it is within the old one.
    A broker without a limit lets everything through: to give it its share is a shrink.
    """
    shrinks, grows = [], []
    for broker, limit in current.items():
        if limit is None:
            shrinks.append(Step(broker, share))
            continue
        least = share.model_copy(
            update={"rate": min(limit.rate, share.rate), "burst": min(limit.burst, share.burst)}
        )
        reached = limit
        if (least.rate, least.burst) != (limit.rate, limit.burst):
            shrinks.append(Step(broker, least))
            reached = least
        if reached != share:
            grows.append(Step(broker, share))
    return Change(tuple(shrinks), tuple(grows))


def contract_with(
    changes: Mapping[str, object], topic: str, shares: Iterable[Limit | None], none: str
) -> Contract:
    """The contract that the shares make up, with `changes` (None takes a key away). none: said of a
    topic without any share. Raises UsageError."""
    held = [share for share in shares if share]
    values: dict[str, object] = {}
    if held:
        values = held[0].document()
        values.pop("contract-burst", None)
        if len(held) > 1:  # a sum of parts has lost the contract's last digits
            for key in ("rate", "burst"):
                values[key] = float(f"{sum(getattr(each, key) for each in held):.12g}")
    elif None in (changes.get("rate"), changes.get("burst")):
        raise UsageError(f"topic {topic} {none}; to give it one, give both --rate and --burst")
    values.update(changes)
    given = {key: value for key, value in values.items() if value is not None}
    return Contract.read({"topic": topic, **given}, f"topic {topic}")
