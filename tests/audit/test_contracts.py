"""Which contract is judged by, from what brokers say as it changes."""

import pytest

from srtm.audit.blocks import Rule, Word
from srtm.audit.contracts import Change, Source, Span, spans_of
from tests.support.admission_logs import floor, own, share

OLD, NEW = (100.0, 10.0), (50.0, 5.0)
SAFE = floor(10.0, 1.0, OLD)  # what a broker has of OLD once its lease has ended
SAFE_BATCH = floor(40.0, 4.0, OLD)  # of a topic whose largest batch is 4
BOTH = [(1, "a", share(60.0, 6.0, OLD)), (1, "b", share(40.0, 4.0, OLD))]
"""all of OLD"""
NONE, SHUT = Word(Rule.NONE), Word(Rule.SHUT, epoch=1)


def told(since: int, contract: tuple[float, float]) -> Span:
    return Span(since, Source.DISTRIBUTOR, *contract)


def changes(*rows: tuple[int, str, Word | None]) -> list[Change]:
    return [Change(*row) for row in rows]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param([], [Span(0, Source.NOBODY)], id="nobody-said-anything"),
        pytest.param([(1, "a", NONE)], [Span(1, Source.NOBODY)], id="no-limit-is-no-contract"),
        pytest.param(
            [(1, "a", own(50, 5)), (2, "b", own(30, 4))],
            [Span(1, Source.GATEWAYS, 50, 5), Span(2, Source.GATEWAYS, 80, 9)],
            id="own-limits-add-up",
        ),
        pytest.param(
            [(1, "a", own(50, 5)), (1, "b", own(50, 5)), (3, "b", None), (5, "b", own(50, 5))],
            [Span(1, Source.GATEWAYS, 100, 10)],
            id="an-own-limit-holds-over-a-restart",
        ),
        pytest.param(
            [(1, "a", own(500, 50)), (2, "b", share(60, 6, OLD))],
            [Span(1, Source.GATEWAYS, 500, 50), told(2, OLD)],
            id="the-distributor-s-word-stands-over-them",
        ),
        pytest.param(
            [(1, "a", share(60, 6, OLD)), (2, "b", share(40, 4, OLD)), (4, "a", share(9, 3, OLD))],
            [told(1, OLD)],
            id="a-share-that-changes-is-no-contract-that-does",
        ),
        pytest.param(
            [*BOTH, (5, "a", share(30, 3, NEW, 2)), (9, "b", share(20, 2, NEW, 2))],
            [told(1, OLD), told(9, NEW)],
            id="less-holds-once-all-brokers-know",
        ),
        pytest.param(
            [
                (1, "a", share(30, 3, NEW)),
                (1, "b", share(20, 2, NEW)),
                (5, "a", share(30, 3, OLD, 2)),
                (9, "b", share(20, 2, OLD, 2)),
            ],
            [told(1, NEW), told(5, OLD)],
            id="more-holds-once-one-broker-knows",
        ),
        pytest.param(
            [
                (1, "a", share(60, 6, (100, 10))),
                (1, "b", share(40, 4, (100, 10))),
                (5, "a", share(60, 6, (200, 5), 2)),
                (9, "b", share(40, 4, (200, 5), 2)),
            ],
            [told(1, (100, 10)), told(5, (200, 10)), told(9, (200, 5))],
            id="r-and-b-each-by-itself",
        ),
        pytest.param(
            [*BOTH, (5, "a", share(30, 3, NEW, 2)), (8, "b", SAFE)],
            [told(1, OLD), told(8, NEW)],
            id="one-whose-lease-ended-has-no-say",
        ),
        pytest.param(
            [
                (1, "a", share(50, 5, OLD)),
                (1, "b", share(50, 5, OLD)),
                (5, "b", SAFE_BATCH),
                (8, "a", share(5, 1, NEW, 2)),
            ],
            [told(1, OLD), told(8, NEW)],
            id="nor-has-one-that-keeps-a-batch-without-contact",
        ),
        pytest.param(
            [
                (1, "a", share(50, 5, OLD)),
                (1, "b", share(40, 4, OLD)),
                (5, "a", share(5, 1, NEW, 2)),
            ],
            [told(1, OLD)],
            id="a-share-with-its-part-of-the-rate-is-no-floor",
        ),
        pytest.param(
            [*BOTH, (5, "a", share(30, 3, NEW, 2)), (8, "b", None)],
            [told(1, OLD), told(8, NEW)],
            id="nor-has-one-that-was-killed",
        ),
        pytest.param(
            [
                (1, "a", share(30, 3, NEW, 2)),
                (5, "b", share(40, 4, OLD, 1)),
                (6, "b", share(20, 2, NEW, 2)),
            ],
            [told(1, NEW), told(5, OLD), told(6, NEW)],
            id="one-that-goes-by-an-older-word-may-use-it",
        ),
        pytest.param(
            [(1, "a", share(60, 6, OLD)), (3, "a", None), (7, "b", NONE)],
            [told(1, OLD)],
            id="a-broker-without-a-limit-does-not-end-it",
        ),
        pytest.param(
            [(1, "a", share(60, 6, OLD)), (1, "b", SHUT), (4, "a", NONE), (6, "b", NONE)],
            [told(1, OLD), Span(6, Source.NOBODY)],
            id="it-ends-when-the-last-broker-drops-it",
        ),
        pytest.param(
            [(1, "a", floor(10, 1, (20, 2))), (1, "b", floor(10, 1, (20, 2)))],
            [told(1, (20, 2))],
            id="shares-that-look-like-safe-ones-are-still-of-a-contract",
        ),
    ],
)
def test_spans(said: list[tuple[int, str, Word | None]], expected: list[Span]) -> None:
    assert spans_of(changes(*said)) == expected
