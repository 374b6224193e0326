"""What a consumer says at its HTTP door."""

from typing import Any

from srtm import __version__
from srtm.consumer.figures import Figures
from srtm.http.metrics import Row, Text

METRICS: tuple[Row[Figures], ...] = (
    Row("srtm_consumer_record_count_total", "counter",
        "Records that the sink has and that are committed.", lambda f: f.records),
    Row("srtm_consumer_record_bytes_total", "counter", "Bytes of their values.",
        lambda f: f.bytes),
    Row("srtm_consumer_batch_count_total", "counter", "Batches of them.", lambda f: f.batches),
    Row("srtm_consumer_busy_seconds_total", "counter",
        "Seconds from a batch in hand to its commit.", lambda f: f.busy_seconds),
    Row("srtm_consumer_dropped_count_total", "counter",
        "Batches that were dropped before the sink, as the lease had ended.",
        lambda f: f.dropped),
    Row("srtm_consumer_failed_count_total", "counter",
        "Batches that the user's function or the sink refused; they come again.",
        lambda f: f.failed),
    Row("srtm_consumer_dead_letter_count_total", "counter",
        "Records of a share group that are dead letters, as they failed too often.",
        lambda f: f.buried),
    Row("srtm_consumer_partitions", "gauge", "Partitions that it has now.",
        lambda f: len(f.partitions)),
)  # fmt: skip


class Status:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def fault(self) -> str:
        return self._figures.fault

    def stats(self) -> dict[str, Any]:
        fault = self._figures.fault
        return {
            "version": __version__,
            "health": f"NOK - {fault}" if fault else "OK",
            **self._figures.document(),
        }

    def metrics(self) -> Text:
        text = Text()
        text.add(METRICS, [({}, self._figures)])
        return text
