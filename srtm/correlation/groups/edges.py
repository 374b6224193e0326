"""Which pairs are sure, which of them become edges, and which only look like it.

Two unrelated publishers with equal periods coincide for ever or never, and no count of coincidences
tells them from members of one group. Three things do. Their clocks differ, so that their lag
travels (by 3 ms a second at a relative difference of 3e-3). Their phases differ: the lag is not 0.
And they pass each other: some quarter of the time has too few coincidences. What is left is two
clocks that agree in phase and rate within their jitter; members.py says how many there are.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from srtm.correlation.groups.pairs import PAIRS
from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns

DISCOVERIES = StructType(PAIRS.fields + columns("q double").fields)
"""q: the rate of false discoveries at which the pair is still found"""

EDGES = StructType(
    DISCOVERIES.fields + columns("beat boolean, edge boolean, by_chance double").fields
)
"""beat: the coincidences are periodic; edge: false: they coincide with another lag than 0, or for a
while; by_chance: edges that are expected for one such pair, as its lag may have been 0 as well"""

_STEPS = 10
"""p is rounded up to a tenth of a decade: q is too high by a quarter at most, and no p is sorted
among millions."""
_UNEVEN = -3.5
"""standard errors"""
_SEEN_US = 48_000
"""Lags of which a periodic pair is found: all within the widest window but those at its ends, of
which jitter takes half away."""


def discoveries(pairs: DataFrame, plan: DataFrame) -> DataFrame:
    """DISCOVERIES of PAIRS: false ones among all pairs of a unit, by Benjamini and Hochberg (1995).

    plan: with the publishers that were judged in each unit, all of whose pairs were tried,
    candidates or not."""
    step = f.ceil(f.log10("p") * _STEPS).cast("int")
    counts = pairs.groupBy("unit", step.alias("step")).agg(f.count("*").alias("n"))
    up = Window.partitionBy("unit").orderBy("step")
    down = Window.partitionBy("unit").orderBy(f.desc("step"))
    possible = f.col("judged") * (f.col("judged") - 1) / 2
    edge = f.pow(f.lit(10.0), f.col("step") / _STEPS)
    found = (
        counts.join(f.broadcast(plan.select("unit", "judged")), "unit")
        .withColumn("q", f.least(f.lit(1.0), possible * edge / f.sum("n").over(up)))
        .withColumn("q", f.min("q").over(down))
        .select(f.col("unit").alias("unit_"), f.col("step").alias("step_"), "q")
    )
    return pairs.join(
        f.broadcast(found), (f.col("unit") == f.col("unit_")) & (step == f.col("step_"))
    ).select(*DISCOVERIES.fieldNames())


def edges(found: DataFrame, settings: Settings) -> DataFrame:
    """EDGES of DISCOVERIES: pairs that are sure, share enough and have concentrated lags."""
    beat = f.col("steady") >= settings.steady
    accepted = _within("lag_error_us", settings)
    still = f.abs("travel_us") <= _within("travel_error_us", settings)
    even = f.col("uneven") >= _UNEVEN
    in_phase = f.abs("lag_us") <= accepted
    sideband = 2 * accepted / f.greatest(_SEEN_US - 2 * accepted, f.lit(1.0))
    return (
        found.where(f.col("q") <= settings.rate)
        .where(f.col("share") >= settings.floor)
        .where(f.col("spread_us") <= settings.spread_us)
        .withColumn("beat", beat)
        .withColumn("edge", ~beat | (in_phase & still & even))
        .withColumn(
            "by_chance", f.when(beat & still & even & ~in_phase, sideband).otherwise(f.lit(0.0))
        )
        .select(*EDGES.fieldNames())
    )


def _within(error: str, settings: Settings) -> Column:
    return f.lit(float(settings.delay_us)) + settings.errors * f.col(error)
