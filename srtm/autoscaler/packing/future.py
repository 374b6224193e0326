"""The consumer group that is being computed (Landau's N): what is open, and what is opened next."""

from enum import StrEnum
from math import inf

from srtm.autoscaler.packing.model import Bin, Bins, Filled, Item
from srtm.autoscaler.packing.problem import SLACK, fits
from srtm.autoscaler.packing.ranking import Entry, Ranking


class Fit(StrEnum):
    """Which of the open bins that have room takes a partition (Landau, section 3.2)."""

    NEXT = "next"
    """The one opened last if it has room, else a new one."""
    FIRST = "first"
    """The one opened first."""
    BEST = "best"
    """The one with the least rate left."""
    WORST = "worst"
    """The one with the most rate left."""


class Future:
    """Open bins, filled by one strategy. Rate decides among them; the lag has to fit as well."""

    def __init__(self, bins: Bins, fit: Fit) -> None:
        self._bins = bins
        self._fit = fit
        self._open = Ranking()
        self._rooms: list[Bin] = []
        self._groups: list[list[int]] = []
        self._index = {room.consumer: number for number, room in enumerate(bins.existing)}
        self._closed = Ranking()
        for number, room in enumerate(bins.existing):
            self._closed.open(number, room.rate * (1 + SLACK), room.lag * (1 + SLACK))

    def filled(self) -> list[Filled]:
        """The bins that hold something, in the order of opening."""
        pairs = zip(self._rooms, self._groups, strict=True)
        return [Filled(room, tuple(group)) for room, group in pairs if group]

    def place(self, item: Item) -> bool:
        """Into an open bin, or False."""
        bins = self._open
        entry: Entry | None
        if self._fit is Fit.NEXT:
            last = len(self._rooms) - 1
            takes = last >= 0 and bins.rates[last] >= item.rate and bins.lags[last] >= item.lag
            entry = (last, last) if takes else None
        else:
            least = item.rate if self._fit is Fit.BEST else -inf
            entry = bins.first(item.rate, item.lag, least)
        if entry is None:
            return False
        self._put(item, entry)
        return True

    def add(self, item: Item) -> None:
        """Into an open bin, or into one that is opened for it."""
        if not self.place(item):
            self.open_for(item)

    def open_for(self, item: Item) -> None:
        """Landau's bin creation (section 4.4.5, Fig. 4.7): the consumer that has the partition
        now, if it is not open yet; else the first existing one that is not; else a new one.

        A consumer with room for the partition goes before one without. A partition that exceeds
        them all is alone in its bin: nothing is left there for others.
        """
        own = self._index.get(item.consumer)
        if own is not None and self._closed.rates[own] < 0:
            own = None  # open already
        if own is not None and fits(item.rate, item.lag, self._bins.existing[own]):
            number = self._open_existing(own)
        elif (lowest := self._closed.first(item.rate, item.lag)) is not None:
            number = self._open_existing(lowest[1])
        elif fits(item.rate, item.lag, self._bins.new):
            number = self._open_bin(self._bins.new)
        elif own is not None:
            number = self._open_existing(own)
        elif (lowest := self._closed.first(0.0, 0.0)) is not None:
            number = self._open_existing(lowest[1])
        else:
            number = self._open_bin(self._bins.new)
        self._put(item, (self._key(number), number))

    def open_consumer(self, consumer: str) -> int:
        """This existing consumer, which must not be open yet; its number for `place_in`."""
        return self._open_existing(self._index[consumer])

    def place_in(self, number: int, item: Item) -> bool:
        """Into this bin, or False."""
        if self._open.rates[number] < item.rate or self._open.lags[number] < item.lag:
            return False
        self._put(item, (self._key(number), number))
        return True

    def _open_existing(self, own: int) -> int:
        self._closed.take((own, own), inf, 0.0, own)
        return self._open_bin(self._bins.existing[own])

    def _open_bin(self, room: Bin) -> int:
        rate, lag = room.rate * (1 + SLACK), room.lag * (1 + SLACK)
        number = len(self._rooms)
        self._rooms.append(room)
        self._groups.append([])
        return self._open.open(self._key_of(rate, number), rate, lag)

    def _put(self, item: Item, entry: Entry) -> None:
        number = entry[1]
        key = self._key_of(self._open.rates[number] - item.rate, number)
        self._open.take(entry, item.rate, item.lag, key)
        self._groups[number].append(item.id)

    def _key(self, number: int) -> float:
        return self._key_of(self._open.rates[number], number)

    def _key_of(self, left: float, number: int) -> float:
        if self._fit is Fit.BEST:
            return left
        return -left if self._fit is Fit.WORST else number
