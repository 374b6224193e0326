"""All steps from a trace to its groups."""

import logging
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from srtm.correlation.groups.candidates import candidates, plan
from srtm.correlation.groups.components import components
from srtm.correlation.groups.edges import discoveries, edges
from srtm.correlation.groups.evidence import groups
from srtm.correlation.groups.members import members, not_by_chance
from srtm.correlation.groups.pairs import judged_pairs
from srtm.correlation.groups.publishers import publishers, series, units
from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns
from srtm.host.clock import NS, monotonic_ns

_log = logging.getLogger(__name__)

TOPICS = columns("topic string, window bigint, publishers bigint, ungrouped bigint")

_ROWS_OF_A_TASK = 400_000
"""Arrivals that a Python worker holds at once: 100 MB with their hashes."""
_MOST_PLANS_LOGGED = 5
_LONG_SECONDS = 20.0


@dataclass(frozen=True)
class Found:
    """groups: GROUPS; topics: TOPICS; plan: PLAN."""

    groups: DataFrame
    topics: DataFrame
    plan: DataFrame


def find_groups(came: DataFrame, settings: Settings) -> Found:
    """The groups among ARRIVALS, with their topics and the plan of the search."""
    who = _kept("publishers", publishers(came, settings))
    all_units = _kept("units", units(who))
    total = all_units.agg(f.coalesce(f.sum("arrivals"), f.lit(0))).first()
    parts = max(1, -(-(total[0] if total else 0) // _ROWS_OF_A_TASK))
    planned = _kept("plan", plan(all_units, settings))
    _report(planned)
    rows = _kept("series", series(came, who, settings, parts))
    likely = _kept("candidates", candidates(rows, planned, settings, parts))
    pairs = _kept("pairs", judged_pairs(likely, components(likely), rows, settings, parts))
    sure = _kept("edges", edges(discoveries(pairs, planned), settings))
    grouped = _kept("members", members(sure, components(sure.where("edge")), settings, parts))
    real = _kept("sizes by chance", not_by_chance(grouped, sure, planned))
    found = _kept("groups", groups(real, who, rows, settings, parts))
    in_groups = found.groupBy("topic", "window").agg(f.sum(f.size("publishers")).alias("n"))
    topics = all_units.join(in_groups, ["topic", "window"], "left").select(
        "topic",
        "window",
        "publishers",
        (f.col("publishers") - f.coalesce("n", f.lit(0))).alias("ungrouped"),
    )
    return Found(found, topics, planned)


def _kept(step: str, frame: DataFrame) -> DataFrame:
    """Its rows on disk, without how they came: steps use each other's frames several times, and
    Spark would plan anew all that leads to each of them (a minute of CPU, however few the rows).
    A step that takes long says so."""
    began_ns = monotonic_ns()
    kept = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
    seconds = (monotonic_ns() - began_ns) / NS
    _log.log(
        logging.INFO if seconds >= _LONG_SECONDS else logging.DEBUG, "%s: %.0f s", step, seconds
    )
    return kept


def _report(planned: DataFrame) -> None:
    """How the largest units are searched."""
    for row in planned.orderBy(f.desc("estimated")).limit(_MOST_PLANS_LOGGED).collect():
        _log.info(
            "topic %s, window %d: %s publishers, candidates by %s (bins of %g ms%s), about %.2g",
            row.topic,
            row.window,
            f"{row.judged:,}",
            row.method,
            row.bin_us / 1e3,
            f", {row['values']} values a band" if row["values"] else "",
            row.estimated,
        )
