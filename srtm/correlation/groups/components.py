"""Connected components of a graph of ids."""

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from srtm.correlation.schema import columns

COMPONENTS = columns("id bigint, component bigint, size bigint")
"""component: the least id in it; size: of the component"""

ON_DRIVER = 2_000_000
"""Edges up to which the driver does it: 32 MB, and a second where Spark takes half a minute."""


def components(edges: DataFrame, on_driver: int = ON_DRIVER) -> DataFrame:
    """COMPONENTS of the edges a, b. They are read more than once: persist them before."""
    some = edges.select("a", "b").limit(on_driver + 1).toArrow()
    if some.num_rows <= on_driver:
        return _of_driver(edges.sparkSession, some)
    return _sized(_stars(edges.select("a", "b")))


def _of_driver(spark: SparkSession, edges: pa.Table) -> DataFrame:
    a, b = edges.column("a").to_numpy(), edges.column("b").to_numpy()
    known, number = np.unique(np.concatenate([a, b]), return_inverse=True)
    if not known.size:
        return spark.createDataFrame([], COMPONENTS)
    graph = coo_array(
        (np.ones(a.size, np.int8), (number[: a.size], number[a.size :])), shape=(known.size,) * 2
    )
    count, label = connected_components(graph, directed=False)
    least = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(least, label, known)
    table = {"id": known, "component": least[label], "size": np.bincount(label)[label]}
    return spark.createDataFrame(pa.table(table), COMPONENTS)


def _sized(labels: DataFrame) -> DataFrame:
    sizes = labels.groupBy("component").agg(f.count("*").alias("size"))
    return labels.join(sizes, "component").select("id", "component", "size")


def _stars(edges: DataFrame) -> DataFrame:
    """id, component by alternating large-star and small-star (Kiveris et al. 2014): rounds grow as
    the logarithm of the number of nodes, and no node's neighbours are gathered in one place."""
    pairs = edges.where("a != b").select(
        f.greatest("a", "b").alias("u"), f.least("a", "b").alias("v")
    )
    pairs = pairs.distinct().localCheckpoint()
    before = None
    while True:
        pairs = _small_star(_large_star(pairs)).localCheckpoint()
        state = pairs.agg(f.count("*"), f.sum(f.xxhash64("u", "v").cast("decimal(38,0)"))).first()
        if state == before:
            break
        before = state
    roots = pairs.select(f.col("v").alias("id"), f.col("v").alias("component")).distinct()
    return pairs.select(f.col("u").alias("id"), f.col("v").alias("component")).union(roots)


def _large_star(pairs: DataFrame) -> DataFrame:
    """Neighbours above each node now hang on its least neighbour, or itself."""
    both = pairs.union(pairs.select(f.col("v").alias("u"), f.col("u").alias("v")))
    least = both.groupBy("u").agg(f.least(f.min("v"), f.first("u")).alias("m"))
    return (
        both.join(least, "u")
        .where("v > u and v != m")
        .select(f.col("v").alias("u"), f.col("m").alias("v"))
        .distinct()
    )


def _small_star(pairs: DataFrame) -> DataFrame:
    """Neighbours below each node, and the node, now hang on the least of them."""
    down = pairs.select(f.greatest("u", "v").alias("u"), f.least("u", "v").alias("v"))
    least = down.groupBy("u").agg(f.min("v").alias("m"))
    joined = down.join(least, "u")
    moved = joined.where("v != m").select(f.col("v").alias("u"), f.col("m").alias("v"))
    return moved.union(least.select("u", f.col("m").alias("v"))).distinct()
