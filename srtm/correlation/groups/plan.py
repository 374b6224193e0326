"""How candidate pairs are looked for in each unit, by what it would cost.

An inverted index on time bins is exact, and costs arrivals x arrivals/s x bin. Above that, LSH: a
publisher is the set of its time bins, and those whose sets are alike share values of a MinHash.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns

INDEX, LSH = "index", "lsh"
BANDS = {1: 32, 2: 64, 3: 128}
"""Values of a band -> bands. A pair has to share two. Sets of publishers whose own traffic is as
much as their bursts are alike by 0.2 to 0.33: they share 6, 3 and 1 at the least, on average."""
_MOST_INDEXED = 2e7
_MOST_BY_CHANCE = 2e7
"""Pairs that are counted: 3 s of a core for each 10^7."""
_MOST_CANDIDATES = 0.1
"""for each publisher, that share two bands by chance. Judging one costs 0.1 ms, and where they are
many all groups are in one component, too large for all of its pairs to be tried."""
_MOST_ALIKE = 0.05
"""of two sets by chance. Where publishers send more often, bins are narrower, and jitter that is
wider than a bin goes unseen."""
_NARROWEST_US = 2_000

PLAN = columns(
    "topic string, window bigint, unit bigint, judged bigint, method string, bin_us bigint, "
    "values int, estimated double"
)
"""values: of a band (LSH), 0 for the index; estimated: pairs that are counted, chance ones."""


def plan(units: DataFrame, settings: Settings) -> DataFrame:
    """PLAN of UNITS."""
    seconds = f.greatest(f.col("seconds"), f.lit(1.0))
    widest = 2 * settings.widest_us
    indexed = f.col("arrivals") * f.col("arrivals") / seconds * (widest / 1e6)
    each = f.col("arrivals") / f.greatest(f.col("judged"), f.lit(1)) / seconds / 2e6
    narrower = f.floor(f.lit(_MOST_ALIKE) / f.greatest(each, f.lit(1e-12)))
    width = f.least(f.lit(widest), f.greatest(f.lit(_NARROWEST_US), narrower)).cast("long")
    is_indexed = indexed <= _MOST_INDEXED

    def by_chance(values: int) -> Column:
        judged = f.col("judged").cast("double")
        return judged * judged / 2 * f.pow(each * width, f.lit(values)) * BANDS[values]

    def few(values: int) -> Column:
        judged = f.col("judged").cast("double")
        bands = f.pow(each * width, f.lit(values)) * BANDS[values]
        shared = judged * judged / 2 * f.least(f.lit(1.0), bands * bands / 2)
        return (by_chance(values) <= _MOST_BY_CHANCE) & (shared <= _MOST_CANDIDATES * judged)

    values = f.when(few(1), 1).when(few(2), 2).otherwise(3)
    counted = f.when(values == 1, by_chance(1)).when(values == 2, by_chance(2))
    return units.where(f.col("judged") >= 2).select(
        "topic",
        "window",
        "unit",
        "judged",
        f.when(is_indexed, INDEX).otherwise(LSH).alias("method"),
        f.when(is_indexed, f.lit(widest)).otherwise(width).cast("long").alias("bin_us"),
        f.when(is_indexed, 0).otherwise(values).cast("int").alias("values"),
        f.when(is_indexed, indexed)
        .otherwise(f.coalesce(counted, by_chance(3)))
        .cast("double")
        .alias("estimated"),
    )
