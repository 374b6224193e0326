"""Which limit holds for a topic, and what the admission log says of it."""

import pytest

from srtm.audit.blocks import Rule, Word
from srtm.gateway.lease import Known, Unplaced
from srtm.gateway.limits import Limits
from srtm.limits.contract import Limit

OWN, DEFAULT, SHARE = (Limit(rate=rate, burst=2) for rate in (1, 2, 3))


def limits_of(unplaced: Unplaced) -> Limits:
    limits = Limits(DEFAULT)
    limits.own[b"own"] = limits.own[b"both"] = OWN
    limits.leased[b"both"] = limits.leased[b"share"] = SHARE
    limits.know(Known(names=frozenset({"share", "elsewhere", "own"}), unplaced=unplaced))
    return limits


@pytest.mark.parametrize(
    ("name", "unplaced", "shut", "leased"),
    [
        pytest.param(b"share", Unplaced.REJECT, False, True, id="a-share"),
        pytest.param(b"elsewhere", Unplaced.REJECT, True, True, id="placed-elsewhere"),
        pytest.param(b"own", Unplaced.REJECT, True, True, id="over-its-own-contract"),
        pytest.param(b"both", Unplaced.REJECT, False, True, id="a-share-of-one-that-has-its-own"),
        pytest.param(b"other", Unplaced.REJECT, False, False, id="unknown-to-the-distributor"),
        pytest.param(b"elsewhere", Unplaced.PASS, False, False, id="passes-beside-the-placement"),
        pytest.param(b"share", Unplaced.PASS, False, True, id="a-share-all-the-same"),
    ],
)
def test_who_has_the_last_word(name: bytes, unplaced: Unplaced, shut: bool, leased: bool) -> None:
    limits = limits_of(unplaced)
    assert limits.is_shut(name) is shut
    assert limits.is_leased(name) is leased
    assert limits.refuses(name) is (unplaced is Unplaced.REJECT)


def test_without_a_share_its_own_holds_or_the_default() -> None:
    limits = limits_of(Unplaced.PASS)
    assert [limits.without_share(each) for each in (b"own", b"both", b"x")] == [OWN, OWN, DEFAULT]
    assert [limits.is_given(each) for each in (b"own", b"share", b"x")] == [True, True, False]


def test_only_what_changes_is_news() -> None:
    limits = limits_of(Unplaced.PASS)
    known = Known(names=frozenset({"a"}), unplaced=Unplaced.REJECT)
    assert limits.know(known) is True
    assert limits.know(known) is False


def test_the_admission_log_is_told_whose_limit_it_is() -> None:
    limits = limits_of(Unplaced.REJECT)
    whole = {"share": (30.0, 20.0)}
    assert limits.word(b"share", SHARE, whole, 7) == Word(Rule.SHARE, 3, 2, 30, 20, 7)
    floor = SHARE.model_copy(update={"burst": 1.0})
    assert limits.word(b"share", floor, whole, 7) == Word(Rule.FLOOR, 3, 1, 30, 20, 7)
    assert limits.word(b"elsewhere", None, whole, 7) == Word(Rule.SHUT, epoch=7)
    assert limits.word(b"other", DEFAULT, whole, 7) == Word(Rule.OWN, 2, 2)
    assert limits.word(b"other", None, whole, 7) == Word(Rule.NONE)
