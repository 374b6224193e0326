"""Every order of events of the lease protocol within bounds: see `tests.distributor.lease_states`.

LONG=yes follows millions of events on all cores, for a quarter of an hour."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from distributor.control import service
from tb_adaptor import leases
from tests.distributor import lease_states
from tests.distributor.lease_states import Bounds, Event, explore, replay
from tests.support.cases import LONG

MOST = 400_000 if LONG else 250
"""worlds from each begin, after which no further event is followed"""
WAIT: list[Event] = [("tick",)] * 4
KEPT: list[Event] = [("grace", 3), *[("report", name, 0, "") for name in ("b1", "b2") * 2]]
BEGINS: list[list[Event]] = [
    [],
    [("kill",), ("report", "b1", 0, ""), *WAIT],
    [("freeze",), ("tick",), ("report", "b1", 0, ""), ("report", "b2", 1, "")],
    [("copy",), ("place", 1), *[("report", name, 0, "") for name in ("b1", "b2", "b1")], ("old",)],
    [("lose",), ("report", "b1", 0, "")],
    [("place", 2), ("report", "b2", 0, "idle"), ("crash", "b1", 0)],
    [*KEPT, *WAIT, ("place", 2), ("report", "b1", 0, "")],
    [("copy",), *KEPT, ("old",), ("report", "b2", 0, ""), *WAIT, ("settle",), ("place", 1)],
    [*KEPT, ("kill",), *WAIT, ("tick",), ("report", "b1", 0, "")],
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", BEGINS)
def test_whatever_happens_the_contract_holds_and_shares_come_back(first: list[Event]) -> None:
    bounds = Bounds(8, 2, ticks=8, places=2) if LONG else Bounds(3, 1, ticks=3, places=1)
    workers = os.cpu_count() or 1 if LONG else 1
    found = explore(bounds, first, workers=workers, most=MOST)
    assert found.faults == []
    assert found.worlds > 150
    assert found.lively > found.worlds / 50


def counts_from_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway counts its lease from when the answer came."""
    take = lease_states.Gateway.take

    def late(gateway: lease_states.Gateway, desired: Any, sent_at: float, now: float) -> None:
        take(gateway, desired, now, now)

    monkeypatch.setattr(lease_states.Gateway, "take", late)


def waits_for_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever begins to lead takes it that no lease of before runs on."""
    monkeypatch.setattr(lease_states, "WAIT", 0.0)


def never_looks_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that is frozen answers reports however long ago it looked at the store."""
    monkeypatch.setattr(service.Distributor, "_reporting", _reporting)


def _reporting(distributor: service.Distributor, name: str, report: Any) -> Any:
    distributor.confirmed_at = distributor.now()
    return _REPORTING(distributor, name, report)


_REPORTING = service.Distributor._reporting


def grows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share grows though the others have not made room."""
    monkeypatch.setattr(leases, "_room", lambda total, wanted, others: wanted)


def forgets_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broker keeps after its lease counts for nothing."""
    monkeypatch.setattr(
        leases.Holder,
        "_kept",
        lambda holder, share, now: share if now < holder.lease_ends_at else share.floor,
    )


CHAINS: list[tuple[Callable[[pytest.MonkeyPatch], None], Sequence[Event]]] = [
    (
        counts_from_the_answer,
        [
            ("report", "b1", 0, "late"),
            ("tick",),
            ("tick",),
            ("arrive", "b1"),
            ("place", 1),
            ("tick",),
            ("report", "b2", 0, ""),
        ],
    ),
    (
        waits_for_no_lease,
        [("kill",), ("place", 1), ("report", "b2", 0, "")],
    ),
    (
        never_looks_who_leads,
        [
            ("freeze",),
            ("tick",),
            ("tick",),
            ("report", "b1", 0, ""),
            ("tick",),
            ("tick",),
            ("place", 1),
            ("report", "b2", 1, ""),
        ],
    ),
    (grows_at_once, [("place", 1), ("report", "b2", 0, "")]),
    (
        forgets_the_grace,
        [*KEPT, ("tick",), ("place", 1), *WAIT[1:], ("report", "b2", 0, "")],
    ),
]


@pytest.mark.parametrize(
    ("mistake", "events"), CHAINS, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_chain_of_events_shows_the_mistake_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
    mistake: Callable[[pytest.MonkeyPatch], None],
    events: Sequence[Event],
) -> None:
    replay(events)
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="shares of"):
        replay(events)


def test_the_shortest_chain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    grows_at_once(monkeypatch)
    [*chains] = (chain for chain, _ in explore(Bounds(3, 0, ticks=1, places=1)).faults)
    assert (("place", 1), ("report", "b2", 0, "")) in chains
