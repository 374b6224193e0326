"""Contracts: as a flag, as a mapping, as text again, and what is wrong with them in one line."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.limits.bucket import TokenBucket
from srtm.limits.contract import MAX_BURST, MAX_RATE, MIN_RATE, Contract, Fair, Limit, Mode
from srtm.limits.slo import SLO
from srtm.text.errors import Exit, UsageError


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param("t,rate=5,burst=1", Contract(topic="t", rate=5, burst=1), id="the-least"),
        pytest.param("t,burst=1,rate=5", Contract(topic="t", rate=5, burst=1), id="in-any-order"),
        pytest.param(
            "t,rate=1e3,burst=2.5", Contract(topic="t", rate=1000, burst=2.5), id="floats"
        ),
        pytest.param(
            "t#ephemeral,rate=5,burst=1,mode=reject,max-wait=1m30s,slo=0.99@1ms",
            Contract(
                topic="t#ephemeral",
                rate=5,
                burst=1,
                mode=Mode.REJECT,
                max_wait=90.0,
                slo=SLO(0.99, 0.001),
            ),
            id="everything",
        ),
        pytest.param(
            f"t,rate={MIN_RATE},burst=1", Contract(topic="t", rate=MIN_RATE, burst=1), id="slowest"
        ),
        pytest.param(
            f"t,rate={MAX_RATE},burst={MAX_BURST}",
            Contract(topic="t", rate=MAX_RATE, burst=MAX_BURST),
            id="the-most",
        ),
    ],
)
def test_specs(spec: str, expected: Contract) -> None:
    assert Contract.parse(spec) == expected


NUMBER = "must be a number"
BAD_SPECS = [
    pytest.param("", "rate, burst: needed; also wrong: topic", id="nothing"),
    pytest.param("t", "rate, burst: needed", id="a-name-alone"),
    pytest.param("t,rate=5", "burst: needed", id="no-burst"),
    pytest.param(
        "t,rate=5,burst=1,slo=0.99@5ms over 1h", "write 0.99@5ms; only srtm", id="a-window"
    ),
    pytest.param("t,", "'' is not one of rate, burst, mode, max-wait", id="a-comma"),
    pytest.param("t,rate", "'rate' is not one of", id="no-value"),
    pytest.param("t,rate=", f"rate: {NUMBER} (got ''); also wrong: burst", id="an-empty-value"),
    pytest.param("t,brust=1", "'brust=1' is not one of", id="a-misspelt-key"),
    pytest.param("t,max_wait=1s", "'max_wait=1s' is not one of", id="an-underscore"),
    pytest.param("t,topic=u,rate=1,burst=1", "'topic=u' is not one of", id="the-name-as-a-key"),
    pytest.param("t,rate=1,burst=1,rate=1", "rate is given twice", id="a-key-twice"),
    pytest.param("a b,rate=1,burst=1", "topic: 'a b' is not a topic name", id="a-space"),
    pytest.param("rate=1,burst=1", "rate: needed; also wrong: topic", id="no-name"),
    pytest.param("rate=1,rate=1,burst=1", "topic: 'rate=1' is not a topic name", id="no-name-2"),
    pytest.param("x" * 65 + ",rate=1,burst=1", "is not a topic name: 1 to 64", id="a-long-name"),
    pytest.param("t,rate=x,burst=1", f"rate: {NUMBER} (got 'x')", id="rate-in-letters"),
    pytest.param("t,rate=0,burst=1", "rate: must be greater than 0 (got '0')", id="rate-0"),
    pytest.param("t,rate=-5,burst=1", "rate: must be greater than 0", id="rate-negative"),
    pytest.param("t,rate=nan,burst=1", "rate: must be a finite number", id="rate-nan"),
    pytest.param("t,rate=inf,burst=1", "rate: must be a finite number", id="rate-inf"),
    pytest.param("t,rate=1e999,burst=1", "rate: must be a finite number", id="rate-1e999"),
    pytest.param("t,rate=1e10,burst=1", "rate: must be less than", id="rate-absurd"),
    pytest.param("t,rate=1e-9,burst=1", "1e-09 messages/s is less than", id="rate-of-years"),
    pytest.param("t,rate=5e-324,burst=1", "rate: 4.94066e-324 messages/s is", id="rate-denormal"),
    pytest.param("t,rate=1,burst=0", "burst: must be greater than or equal", id="burst-0"),
    pytest.param("t,rate=1,burst=0.99", "burst: must be greater than", id="burst-under-1"),
    pytest.param("t,rate=1,burst=-1", "burst: must be greater than", id="burst-negative"),
    pytest.param("t,rate=1,burst=nan", "burst: must be a finite number", id="burst-nan"),
    pytest.param("t,rate=1,burst=1e10", "burst: must be less than", id="burst-absurd"),
    pytest.param("t,rate=1,burst=1,mode=drop", "'delay' or 'reject' (got 'drop')", id="mode"),
    pytest.param("t,rate=1,burst=1,fair=yes", "'publisher' or 'key' (got 'yes')", id="fair"),
    pytest.param("t,rate=1,burst=1,max-wait=5", "max-wait: '5' is not a duration", id="no-unit"),
    pytest.param("t,rate=1,burst=1,max-wait=0", "max-wait: must be greater", id="no-wait"),
    pytest.param("t,rate=1,burst=1,max-wait=-1s", "max-wait: '-1s' is not a duration", id="past"),
    pytest.param("t,rate=1,burst=1,slo=1ms", "slo: '1ms' is not an SLO; write", id="slo"),
    pytest.param("t,rate=1,burst=1,slo=99@1ms", "write 0.99 for p99", id="slo-in-percent"),
    pytest.param("t,rate=1,burst=1,slo=0.9@0", "must be more than 0", id="slo-of-nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), BAD_SPECS)
def test_a_bad_spec_is_told_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        Contract.parse(spec)
    line = str(raised.value)
    assert line.startswith(f"--topic {spec}: ")
    assert message in line
    assert "\n" not in line
    assert raised.value.exit_code == Exit.USAGE == 2


LEAST = {"topic": "t", "rate": 5, "burst": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param([], "must be a table", id="a-list"),
        pytest.param(None, "must be a table", id="nothing"),
        pytest.param("t,rate=5,burst=1", "must be a table", id="a-spec"),
        pytest.param({}, "rate, burst, topic: needed", id="an-empty-mapping"),
        pytest.param({"rate": 5, "burst": 1}, "topic: needed", id="no-name"),
        pytest.param(LEAST | {"topic": 5}, "topic: must be text", id="a-number"),
        pytest.param(LEAST | {"rate": []}, "rate: must be a number", id="a-list-rate"),
        pytest.param(LEAST | {"rate": math.nan}, "rate: must be a finite", id="nan"),
        pytest.param(LEAST | {"burst": math.inf}, "burst: must be a finite", id="inf"),
        pytest.param(LEAST | {"max-wait": math.inf}, "no duration", id="an-endless-wait"),
        pytest.param(LEAST | {"max-wait": 1e300}, "no duration", id="an-absurd-wait"),
        pytest.param(LEAST | {"max-wait": -1.0}, "no duration", id="a-negative-wait"),
        pytest.param(LEAST | {"max-wait": 5}, "5 is not a duration", id="a-wait-without-a-unit"),
        pytest.param(LEAST | {"slo": 5}, "slo: must be", id="a-number-for-an-slo"),
        pytest.param(
            LEAST | {"lease-grace": "25h"},
            "lease-grace: 25h is more than a day: 24h at most",
            id="a-long-grace",
        ),
        pytest.param(LEAST | {"more": 5}, "more: Extra inputs are not permitted", id="unknown-key"),
    ],
)
def test_a_bad_mapping_is_told_in_one_line(values: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        Contract.read(values, "topics.toml")
    assert str(raised.value).startswith("topics.toml: ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


LIMITS = st.builds(
    Limit,
    rate=st.floats(MIN_RATE, MAX_RATE),
    burst=st.floats(1, MAX_BURST),
    mode=st.sampled_from(Mode),
    fair=st.none() | st.sampled_from(Fair),
    max_wait=st.none() | st.integers(1, 10**15).map(lambda ns: round(ns / 1e9, 9)),
    slo=st.none()
    | st.builds(
        SLO,
        st.integers(1, 10**9 - 1).map(lambda n: n / 1e9),
        st.integers(1, 10**15).map(lambda ns: round(ns / 1e9, 9)),
    ),
)


@given(LIMITS)
def test_a_document_reads_back_as_the_same_limit(limit: Limit) -> None:
    assert Limit.model_validate(limit.document()) == limit


@given(LIMITS)
def test_every_contract_that_is_taken_makes_a_bucket(limit: Limit) -> None:
    contract = Contract.read({**limit.document(), "topic": "t"}, "here")
    assert contract.limit() == limit
    bucket = TokenBucket(limit.rate, limit.burst, 0, 0.0)
    assert bucket.take(1, bucket.ready_at(1)) is not None


def test_a_document_has_the_keys_of_a_file() -> None:
    contract = Contract.parse("t,rate=5,burst=2,max-wait=250ms,slo=0.99@1ms")
    assert contract.document() == {
        "topic": "t",
        "rate": 5.0,
        "burst": 2.0,
        "mode": "delay",
        "max-wait": "250ms",
        "slo": "0.99@1ms",
    }
    assert Contract.parse("t,rate=5,burst=2").limit().document() == {
        "rate": 5.0,
        "burst": 2.0,
        "mode": "delay",
    }


@given(LIMITS, st.integers(1, 1000))
def test_shares_sum_to_no_more_than_the_whole(limit: Limit, parts: int) -> None:
    if parts > limit.burst:
        with pytest.raises(UsageError, match="each needs at least one whole message"):
            limit.share(parts)
        return
    share = limit.share(parts)
    assert share.burst >= 1
    assert share.rate * parts <= limit.rate * (1 + 1e-15)
    assert share.burst * parts <= limit.burst * (1 + 1e-15)
    for rule in ("mode", "max_wait", "slo", "fair"):
        assert getattr(share, rule) == getattr(limit, rule)


def test_a_split_over_too_many_says_what_would_do() -> None:
    with pytest.raises(UsageError, match="raise burst to 3 or use at most 2 of the brokers"):
        Limit(rate=5, burst=2.5).share(3)
    assert Limit(rate=5, burst=2.5).share(2).burst == 1.25


@pytest.mark.parametrize("parts", [0, -1])
def test_a_share_of_nobody_is_a_mistake(parts: int) -> None:
    with pytest.raises(ValueError, match="one or more"):
        Limit(rate=5, burst=2).share(parts)
