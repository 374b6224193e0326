"""The distributor's settings: flags, file keys, environment and help in one table."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distributor.api_fields import Unplaced
from srtm.text.address import Address
from srtm.text.fields import Duration, ListenAddress


class DistributorOptions(BaseModel):
    """See `srtm distributor --help`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    http_address: ListenAddress = Field(
        Address("127.0.0.1", 4180),
        description="address to listen on; one that other hosts reach needs --token-file",
    )
    store: str = Field(
        "srtm-distributor.db",
        description="path of a SQLite file, or postgresql://HOST/NAME (a password belongs into "
        "~/.pgpass or the environment)",
    )
    lease_duration: Duration = Field(
        30.0,
        ge=1,
        le=3600,
        description="how long a broker keeps its share without contact; a share that moves away "
        "from a lost broker is free after it",
    )
    unplaced: Unplaced = Field(
        "floor",
        description="what gateways do with messages of a topic that the placement has not put on "
        "their broker: floor: hold them until the others have made room for one message of burst "
        "with its part of the rate; reject: refuse them; pass: let them through without a limit",
    )
    forget: bool = Field(
        False,
        description="start although gateways know topics and shares of a store that was lost: "
        "these count for nothing, and limits that only gateways know end",
    )
    token_file: str = Field("", description="file of mode 0600 with the token that callers give")
    log_level: Literal["debug", "info", "warn", "error"] = Field(
        "info", description="debug, info, warn or error"
    )

    @model_validator(mode="after")
    def _guarded(self) -> "DistributorOptions":
        if not self.http_address.is_local and not self.token_file:
            raise ValueError(
                f"http-address {self.http_address} is reached from other hosts: give a "
                "token-file, or listen on 127.0.0.1"
            )
        return self
