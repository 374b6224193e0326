"""`[[announced]]`: load that somebody knows will come."""

from datetime import datetime
from typing import Annotated, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Field, field_validator, model_validator

from srtm.options.model import FileTable
from srtm.text.fields import Duration

_MOST_SECONDS = 7 * 86_400.0
_SOME_TIME = datetime(2024, 1, 1)


class AnnouncedTable(FileTable):
    """One announcement: `rate` for so long from each time that `cron` says, or from `at` on; or a
    file of rates.

    rate: of the whole topic, in what rates are counted in, each second
    at:   ISO 8601, in `zone` where it has no offset
    for:  from each begin
    csv:  file with the columns time (ISO 8601) and rate, in order of time; each rate holds until
          the next row; it is read again when it changes
    zone: by which cron, at and times of csv without an offset are read
    """

    rate: float | None = Field(default=None, gt=0, le=1e12)
    cron: str = ""
    at: datetime | None = None
    lasting: Duration | None = Field(default=None, alias="for", gt=0, le=_MOST_SECONDS)
    csv: str = ""
    zone: str = "UTC"

    @field_validator("zone")
    @classmethod
    def _is_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"{zone!r} is no time zone, such as Europe/Berlin") from None
        return zone

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, cron: str) -> str:
        try:
            if cron:
                next(CronSim(cron, _SOME_TIME))
        except (CronSimError, StopIteration) as error:
            said = str(error) or "no day is like that"
            raise ValueError(
                f"{cron!r}: {said}; write minute, hour, day, month and weekday, such as "
                "0 9 * * mon-fri"
            ) from None
        return cron

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.cron) + (self.at is not None) + bool(self.csv) != 1:
            raise ValueError("give one of cron, at and csv: when it comes")
        for key, value in (("rate", self.rate), ("for", self.lasting)):
            if self.csv and value is not None:
                raise ValueError(f"{key} has no effect with csv, whose rows say it; remove it")
            if not self.csv and value is None:
                raise ValueError(f"{key} is missing: how much comes, and for how long")
        return self

    @property
    def timezone(self) -> ZoneInfo:
        return ZoneInfo(self.zone)


Announcements = Annotated[tuple[AnnouncedTable, ...], Field(max_length=100)]
"""`[[announced]]` of a file"""
