"""What a consumer says at its HTTP door."""

from typing import Any

from srtm import __version__
from srtm.consumer.figures import Figures


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

    def metrics(self) -> str:
        return self._figures.metrics()
