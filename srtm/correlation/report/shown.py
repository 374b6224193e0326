"""What of a result is shown: a page stays of one size however many publishers there are; and what
is shown beyond it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from srtm.correlation.report.timeline import Timeline, timelines
from srtm.correlation.result import read_result
from srtm.host.files import read_file
from srtm.text.errors import UsageError
from tb_adaptor.share import Part

MOST_TOPICS = 6
MOST_GROUPS = 12
"""of a topic, the largest ones"""
MOST_DRAWN = 6
"""of them, whose bursts are drawn"""
MOST_MEMBERS = 8
"""of a group, whose arrivals are drawn"""

_PLAIN = ("name", "lift", "q", "coincidences", "share", "periodic")
_COLUMNS = ("topic", "publishers", "instants", *_PLAIN)


class Judged(BaseModel):
    """rate: of false discoveries; floor: share of the bursts that have to coincide."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rate: float
    floor: float


class Run(BaseModel):
    """run.json."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    trace: Path
    rows: int
    left_out: tuple[str, ...] = ()
    settings: Judged


@dataclass(frozen=True)
class Group:
    """publishers: of all members, the first MOST_MEMBERS; instants: ns since 1970."""

    name: str
    size: int
    publishers: tuple[str, ...]
    lift: float
    q: float
    coincidences: int
    share: float
    periodic: bool
    instants: tuple[int, ...]


@dataclass(frozen=True)
class ShownTopic:
    """count: of all its groups; groups: the largest ones; timeline: None without windows."""

    name: str
    publishers: int
    ungrouped: int
    count: int
    groups: tuple[Group, ...]
    timeline: Timeline | None = None

    @property
    def drawn(self) -> tuple[Group, ...]:
        return self.groups[:MOST_DRAWN]


@dataclass(frozen=True)
class Shown:
    """topics: those with most publishers in groups first; left_out: how many are not shown;
    run: what was run (run.json)."""

    folder: Path
    topics: tuple[ShownTopic, ...]
    left_out: int
    run: Run


def shown(folder: Path, topic: str | None = None) -> Shown:
    """What is shown of a result of `srtm correlate run`. Raises UsageError where there is none, or
    it is damaged."""
    result = read_result(folder).only(topic)
    try:
        run = Run.model_validate_json(read_file(folder / "run.json"))
        table = pq.read_table(folder / "groups.parquet", columns=list(_COLUMNS))
        lines = timelines(folder / "windows.parquet")
    except (OSError, ValueError, pa.ArrowException) as error:
        said = str(error).partition("\n")[0][:200]
        raise UsageError(f"{folder}: a damaged result ({said}); run srtm correlate run") from None
    ranked = sorted(
        result.topics, key=lambda each: (each.ungrouped - each.publishers, -each.publishers)
    )
    found = [
        ShownTopic(
            each.topic,
            each.publishers,
            each.ungrouped,
            len(each.groups),
            _groups(table.filter(pc.equal(table.column("topic"), each.topic))),
            lines.get(each.topic),
        )
        for each in ranked[:MOST_TOPICS]
    ]
    return Shown(folder, tuple(found), len(ranked) - len(found), run)


def _groups(table: pa.Table) -> tuple[Group, ...]:
    sizes = pc.list_value_length(table.column("publishers")).to_numpy()
    order = (-sizes).argsort(kind="stable")[:MOST_GROUPS]
    rows = table.take(pa.array(order)).to_pylist()
    return tuple(
        Group(
            size=len(row["publishers"]),
            publishers=tuple(row["publishers"][:MOST_MEMBERS]),
            instants=tuple(row["instants"]),
            **{name: row[name] for name in _PLAIN},
        )
        for row in rows
    )


# --- beyond a result --------------------------------------------------------------------------

Curve = list[tuple[float, float]]
"""(r, b), in order of r"""


@dataclass
class Wait:
    """A topic's token waits, ms, with publishers on brokers by the rule `name`."""

    name: str
    mean_ms: float
    p99_ms: float


@dataclass
class Figures:
    """What is shown of one topic. statistics: as `srtm correlate statistics` gives them; contract:
    rate and burst; brokers: how many it is split over in `waits`; curves: by group, None being the
    topic; ticks and bursts: times in ns by publisher, in the stretch from `begins` to `ends` and
    around an instant of its group; lone: publishers of no group."""

    statistics: dict[str, Any] = field(default_factory=dict)
    contract: Part | None = None
    brokers: int = 0
    waits: list[Wait] = field(default_factory=list)
    curves: dict[str | None, Curve] = field(default_factory=dict)
    begins: int = 0
    ends: int = 0
    ticks: dict[str, list[int]] = field(default_factory=dict)
    bursts: dict[str, list[int]] = field(default_factory=dict)
    lone: list[str] = field(default_factory=list)
