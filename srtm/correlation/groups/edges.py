"""Which pairs become edges, and which only look like it.

Two unrelated publishers with equal periods coincide for ever or never, and no count of coincidences
tells them from members of one group. Three things do. Their clocks differ, so that their lag
travels (by 3 ms a second at a relative difference of 3e-3). Their phases differ: the lag is not 0.
And they pass each other: some quarter of the time has too few coincidences. What is left is two
clocks that agree in phase and rate within their jitter; chance_sizes.py says how many there are.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, DoubleType, StructField, StructType

from srtm.correlation.groups.discoveries import DISCOVERIES
from srtm.correlation.groups.settings import Settings

EDGES = StructType(
    [
        *DISCOVERIES.fields,
        StructField("beat", BooleanType(), False),
        StructField("edge", BooleanType(), False),
        StructField("by_chance", DoubleType(), False),
    ]
)
"""beat: the coincidences are periodic; edge: false: they coincide with another lag than 0, or for a
while; by_chance: edges that are expected for one such pair, as its lag may have been 0 as well"""

_UNEVEN = -3.5
"""standard errors"""
_SEEN_US = 48_000
"""Lags of which a periodic pair is found: all within the widest window but those at its ends, of
which jitter takes half away."""


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
