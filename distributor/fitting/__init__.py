"""Online fitting: how many publishers brokers hold within the SLO, by measurement. Pure."""

from distributor.fitting.capacity import CapacityModel, Load
from distributor.fitting.fitting import Fitting
from distributor.fitting.late_share import MOST_ALLOWED, Side, side
from distributor.fitting.round import Done, Result, Round
from distributor.fitting.samples import Sample
from distributor.fitting.settings import Meanwhile, Mode, Settings
from distributor.fitting.too_small import Arrivals

__all__ = [
    "MOST_ALLOWED",
    "Arrivals",
    "CapacityModel",
    "Done",
    "Fitting",
    "Load",
    "Meanwhile",
    "Mode",
    "Result",
    "Round",
    "Sample",
    "Settings",
    "Side",
    "side",
]
