"""The file of `srtm broker scale`: how many brokers, and what each of them is."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from srtm.deploy.file import Plan, plan_of
from srtm.deploy.scaling.decision import Bounds
from srtm.deploy.tables import plain_name
from srtm.limits.contract import MAX_RATE
from srtm.options.model import FileTable, Objective, read_toml
from srtm.text.address import Address, require_free
from srtm.text.errors import UsageError, one_line
from srtm.text.fields import Duration
from srtm.text.toml_text import toml_text

_MOST_BROKERS = 100
_CHECKED = Address("127.0.0.1", 1), Address("127.0.0.1", 3)
"""addresses by which the tables are checked: free ones are looked for when a broker starts"""


class ScaleTable(FileTable):
    """`[scale]`.

    name:         brokers are called name-1, name-2, ...
    min, max:     brokers that are started, at least and at most
    host:         address of this host on which they listen
    data-path:    folder with a folder for each, relative to the file
    capacity:     messages/s that each holds, where it is known
    slo:          instead: each is measured when it starts, within this SLO
    unneeded-for: for how long the others have room for all that a broker has before it ends
    join:         a start may take, before the broker is in contact with the distributor
    interval:     between two looks
    """

    name: str = Field(default="extra", max_length=32)
    min: int = Field(default=0, ge=0, le=_MOST_BROKERS)
    max: int = Field(ge=0, le=_MOST_BROKERS)
    host: str = "127.0.0.1"
    data_path: str = "srtm-scale"
    capacity: int | None = Field(default=None, gt=0, le=int(MAX_RATE))
    slo: Objective | None = None
    unneeded_for: Duration = Field(default=300.0, gt=0)
    join: Duration = Field(default=60.0, gt=0)
    interval: Duration = Field(default=2.0, ge=0.1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        plain_name(self.name)
        if self.host in ("", "0.0.0.0", "::"):
            raise ValueError(f"host {self.host!r} is no address that clients reach: name one")
        if self.min > self.max:
            raise ValueError(f"min = {self.min} is over max = {self.max}")
        if (self.capacity is None) == (self.slo is None):
            raise ValueError("give capacity, if it is known, or slo, within which it is measured")
        return self

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.min, self.max, self.unneeded_for, self.join)


class ScaleFile:
    """`[scale]`, and the tables of a deployment that each broker gets: `[elsewhere]`, which names
    the distributor, and `[broker]`, which is that of `srtm up` without name and addresses."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError."""
        values = read_toml(path)
        unknown = sorted(values.keys() - {"scale", "elsewhere", "broker"})
        if unknown:
            raise UsageError(f"{path}: [{unknown[0]}]: known are [scale], [elsewhere] and [broker]")
        try:
            self.scale = ScaleTable.model_validate(values.get("scale", {}))
        except ValidationError as error:
            raise one_line(error, f"{path}: [scale]") from None
        self.path = path
        self._elsewhere = _table(values, "elsewhere", path)
        self._broker = _table(values, "broker", path)
        for key in ("name", "host", "tcp-address", "http-address", "capacity"):
            if key in self._broker:
                raise UsageError(f"{path}: [broker] {key}: [scale] says it for each broker")
        if not self._elsewhere.get("distributor-address"):
            raise UsageError(
                f"{path}: [elsewhere] distributor-address is missing: whose publishers are served?"
            )
        try:
            self.folder = (path.parent / Path(self.scale.data_path).expanduser()).resolve()
            require_free(Address(self.scale.host, 0), f"{path}: [scale] host")
        except (RuntimeError, ValueError, OSError) as error:
            raise UsageError(f"{path}: [scale] data-path or host: {error}") from None
        self.plan = self.plan_for(f"{self.scale.name}-{max(1, self.scale.max)}", *_CHECKED)

    def plan_for(self, name: str, tcp: Address, http: Address) -> Plan:
        """The deployment of one broker. Raises UsageError for what `srtm up` would refuse."""
        own: dict[str, Any] = {"name": name, "tcp-address": str(tcp), "http-address": str(http)}
        if self.scale.capacity is not None:
            own["capacity"] = self.scale.capacity
        spec = {
            "deployment": self._deployment(name),
            "distributor": False,
            "elsewhere": {**self._elsewhere, "brokers": [name]},
            "broker": [{**own, **self._broker}],
        }
        return plan_of(spec, str(self.path), self.path.parent)

    def _deployment(self, name: str) -> dict[str, str]:
        folder = str(self.folder / name)
        return {"name": name, "data-path": folder, "broadcast-address": self.scale.host}

    def text_for(self, name: str, tcp: Address, http: Address) -> str:
        """The file of that deployment, for `srtm up` in any folder: its paths are absolute."""
        plan = self.plan_for(name, tcp, http)
        (table,) = plan.brokers
        elsewhere, broker = (
            each.model_dump(mode="json", by_alias=True, exclude_unset=True)
            for each in (plan.elsewhere or plan, table)
        )
        broker |= {key.replace("_", "-"): value for key, value in table.gateway.items()}
        return toml_text(
            {
                "distributor": False,
                "deployment": self._deployment(name),
                "elsewhere": elsewhere,
                "broker": [broker],
            }
        )


def _table(values: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = values.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{path}: [{name}] is to be one table")
    return found
