"""What is done with a batch, whatever it was read from: the user's function, then the sink."""

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from srtm.consumer.ages import Ages
from srtm.consumer.batch import Batch, Record
from srtm.consumer.figures import Figures, Phase
from srtm.consumer.function import Caller
from srtm.consumer.sinks import Sink, rows_of
from srtm.text.errors import Exit

log = logging.getLogger("srtm.consumer")


class Work:
    """process: the user's, or None: the sink gets rows; ages: None: nobody is told of them"""

    def __init__(
        self,
        process: Callable[[list[Record]], Any] | None,
        sink: Sink,
        call: Caller,
        figures: Figures,
        ages: Ages | None = None,
    ) -> None:
        self._process = process
        self._sink = sink
        self._call = call
        self._figures = figures
        self._ages = ages

    def __call__(self, batch: Batch) -> None:
        """Raises LeaseLost where the batch may be somebody else's by now; what the user's code
        raises is its own."""
        in_hand = time.time_ns()
        self._figures.enter(Phase.PROCESS)
        results: Any = rows_of(batch)
        if self._process is not None:
            results = self._call(self._process, list(batch.records))
        batch.check()
        self._figures.enter(Phase.SINK)
        self._sink.write(results, batch)
        if self._ages is not None:
            self._ages.see(batch.records, in_hand, time.time_ns())

    def close(self) -> None:
        self._call.close()


def end_process(why: str, code: Exit = Exit.FAILED) -> None:
    """End the process at once: nothing else stops a function or a sink that hangs."""
    log.critical("%s: the process ends", why)
    logging.shutdown()
    os._exit(code)
