"""The consumer runtime: gather, process, sink, commit, under a lease."""

from srtm.consumer.batch import Batch, LeaseLost, Record
from srtm.consumer.consume_command import consume_file as consume

__all__ = ["Batch", "LeaseLost", "Record", "consume"]
