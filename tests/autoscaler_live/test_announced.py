"""Announced load: when it is to come, what is shown of it to policies, and what they make of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.decision import Decision, Handover
from srtm.autoscaler.live.announced import Announced
from srtm.autoscaler.observation import Announcement, Observation, PartitionSeen
from srtm.autoscaler.policies.srtm import Srtm
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of, even_shares
from srtm.autoscaler.simulator.run import Run, simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.consumer.scaled_file import read_scaled_file
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

FILE = """[kafka]
bootstrap-servers = "127.0.0.1:9092"
[group]
topic = "events"
id = "workers"
slo = "0.99@500ms"
{announced}
"""


def announced(folder: Path, *tables: str) -> Announced:
    file = folder / "group.toml"
    text = "\n".join(f"[[announced]]\n{each}" for each in tables)
    file.write_text(FILE.format(announced=text))
    return Announced(read_scaled_file(file).announced, file)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def shown(found: Sequence[Announcement]) -> list[tuple[float, float, float]]:
    return [(each.begin, each.end, each.rate) for each in found]


def test_a_time_of_each_working_day(tmp_path: Path) -> None:
    every = announced(
        tmp_path, 'rate = 500\ncron = "0 9 * * mon-fri"\nfor = "2h"\nzone = "Europe/Berlin"'
    )
    assert every.at(at("2026-06-05T06:30:00Z")) == (Announcement(1800.0, 9000.0, 500.0),), "Friday"
    assert shown(every.at(at("2026-06-05T07:30:00Z"))) == [(0.0, 5400.0, 500.0)], "it has begun"
    assert every.at(at("2026-06-05T09:00:00Z")) == (), "it is over"
    assert every.at(at("2026-06-06T06:30:00Z")) == (), "Saturday"
    assert shown(every.at(at("2026-12-04T07:30:00Z"))) == [(1800.0, 9000.0, 500.0)], "winter time"
    assert every.at(at("2026-06-05T05:00:00Z")) == (), "more than an hour to go"


def test_once_and_several_at_once(tmp_path: Path) -> None:
    found = announced(
        tmp_path,
        'rate = 300\nat = "2026-12-24T08:00:00+01:00"\nfor = "10m"',
        'rate = 100\nat = "2026-12-24T07:05:00"\nfor = "1h"',
    )
    now = found.at(at("2026-12-24T07:00:00Z"))
    assert shown(now) == [(0.0, 600.0, 300.0), (300.0, 3900.0, 100.0)]
    seen = Observation(0.0, (PartitionSeen(0, 0.0, 0.0),), (), 200.0, announced=now)
    rates = seen.announced_rates(80, 60.0)
    assert rates[:10] == [300.0] * 10
    assert (rates[10:65], rates[65:]) == ([100.0] * 55, [0.0] * 15)


def test_every_minute_is_one_window(tmp_path: Path) -> None:
    found = announced(tmp_path, 'rate = 1\ncron = "* * * * *"\nfor = "90s"')
    assert len(found.at(at("2026-12-24T07:00:30Z"))) == 1


def test_rates_of_a_file_that_changes(tmp_path: Path) -> None:
    rows = tmp_path / "expected.csv"
    rows.write_text("time,rate\n2026-12-24T08:00:00Z,500\n2026-12-24T08:10:00Z,50\n"
                    "2026-12-24T08:20:00Z,0\n")  # fmt: skip
    found = announced(tmp_path, 'csv = "expected.csv"')
    now = at("2026-12-24T08:05:00Z")
    assert shown(found.at(now)) == [(0.0, 300.0, 500.0), (300.0, 900.0, 50.0)]
    rows.write_text("2026-12-24T08:00:00Z,700\n2026-12-24T09:00:00Z,0\n")
    assert shown(found.at(now)) == [(0.0, 3300.0, 700.0)]
    rows.write_text("never,mind\n")
    assert shown(found.at(now)) == [(0.0, 3300.0, 700.0)], "what was read before holds"
    rows.unlink()
    assert shown(found.at(now)) == [(0.0, 3300.0, 700.0)]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("rate = 5", "give one of cron, at and csv"),
        ('rate = 5\ncron = "0 9 * * *"', "for is missing"),
        ('for = "1h"\ncron = "0 9 * * *"', "rate is missing"),
        ('rate = 5\nfor = "1h"\ncron = "0 25 * * *"', "Bad hour"),
        ('rate = 5\nfor = "1h"\ncron = "daily"', "'daily': "),
        ('rate = 5\nfor = "1h"\ncron = "0 0 30 2 *"', "'0 0 30 2 *': "),
        ('rate = 5\nfor = "1h"\nat = "tomorrow"', "at: "),
        ('rate = -5\nfor = "1h"\nat = "2026-12-24T08:00:00"', "rate: must be greater than 0"),
        ('rate = 5\nfor = "8d"\nat = "2026-12-24T08:00:00"', "is not a duration"),
        ('rate = 5\nfor = "169h"\nat = "2026-12-24T08:00:00"', "for: must be less than"),
        ('rate = 5\nfor = "1h"\ncron = "0 9 * * *"\nzone = "Mars/Base"', "is no time zone"),
        ('rate = 5\nfor = "1h"\ncron = "0 9 * * *"\nzone = "../../etc/passwd"', "is no time zone"),
        ('csv = "no.csv"', "no.csv: No such file"),
        ('csv = "bad.csv"', "bad.csv: line 2: 'x,1' is no time,rate"),
        ('csv = "back.csv"', "back.csv: line 2: times have to ascend"),
        ('csv = "nan.csv"', "nan.csv: line 1: "),
        ('csv = "bad.csv"\nrate = 5', "rate has no effect with csv"),
        ('each = "day"', 'unknown key "each"'),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "bad.csv").write_text("time,rate\nx,1\n")
    (tmp_path / "nan.csv").write_text("2026-12-24T08:00:00Z,nan\n")
    (tmp_path / "back.csv").write_text("2026-12-24T08:00:00Z,1\n2026-12-24T07:00:00Z,1\n")
    with pytest.raises(UsageError) as caught:
        announced(tmp_path, table)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 100), st.floats(1, 1e6)), max_size=8),
    st.integers(1, 60),
    st.sampled_from([0.3, 1.0, 7.0]),
)
def test_each_interval_has_the_highest_rate_that_touches_it(
    windows: list[tuple[float, float, float]], intervals: int, seconds: float
) -> None:
    known = tuple(Announcement(begin, begin + lasts, rate) for begin, lasts, rate in windows)
    seen = Observation(0.0, (PartitionSeen(0, 0.0, 0.0),), (), 200.0, announced=known)
    rates = seen.announced_rates(intervals, seconds)
    assert len(rates) == intervals
    for place, rate in enumerate(rates):
        inside = [a.rate for a in known if a.begin < (place + 1) * seconds - 1e-6
                  and a.end > place * seconds + 1e-6]  # fmt: skip
        around = [a.rate for a in known if a.begin < (place + 1) * seconds + 1e-6
                  and a.end > place * seconds - 1e-6]  # fmt: skip
        assert max(inside, default=0.0) <= rate <= max(around, default=0.0)


class Told:
    """A policy that knows of one announcement. begin, end: seconds of the run"""

    name = "srtm, told"

    def __init__(self, policy: Srtm, begin: float, end: float, rate: float) -> None:
        self._policy, self._begin, self._end, self._rate = policy, begin, end, rate

    def decide(self, seen: Observation) -> Decision:
        known: tuple[Announcement, ...] = ()
        if self._end > seen.at:
            begin = max(0.0, self._begin - seen.at)
            known = (Announcement(begin, self._end - seen.at, self._rate),)
        return self._policy.decide(replace(seen, announced=known))


SETTING = Setting(SLO(0.99, 0.5), mu=200.0, handover=Handover.DIRECT)


def crowd(begin: float, end: float, announced: float | None) -> Run:
    """100 events/s, and 900 from second 120 to 240."""
    rates = [100.0] * 120 + [900.0] * 120 + [100.0] * 60
    arrivals = arrivals_of(rates, even_shares(9), ArrivalModel.POISSON, 1)
    policy = Srtm(SETTING.slo)
    told = policy if announced is None else Told(policy, begin, end, announced)
    return simulate(told, arrivals, SETTING)


def test_an_announced_crowd_is_awaited() -> None:
    surprised, told = crowd(0, 0, None), crowd(120, 240, 900.0)
    assert surprised.sla_share < 0.97
    assert told.sla_share > 0.99
    assert told.replica_minutes < 1.15 * surprised.replica_minutes


def test_an_announcement_that_is_wrong_costs_its_floor_and_no_more() -> None:
    rates = [100.0] * 300
    arrivals = arrivals_of(rates, even_shares(9), ArrivalModel.POISSON, 1)
    plain = simulate(Srtm(SETTING.slo), arrivals, SETTING)
    wrong = simulate(Told(Srtm(SETTING.slo), 120, 180, 900.0), arrivals, SETTING)
    assert wrong.sla_share > 0.98
    # Six or seven consumers for a minute, and the time to get there and back.
    assert wrong.replica_minutes - plain.replica_minutes < 7 * 1.5


def test_the_wall_clock_may_be_stepped(tmp_path: Path) -> None:
    found = announced(tmp_path, 'rate = 300\nat = "2026-12-24T08:00:00Z"\nfor = "10m"')
    assert found.at(at("2026-12-24T08:05:00Z"))
    assert found.at(at("2020-01-01T00:00:00Z")) == ()
    assert found.at(at("2026-12-24T08:05:00Z"))
    assert found.now() == () or datetime.now(UTC) > datetime(2026, 12, 24, tzinfo=UTC)
