"""The distributor's settings: flags, file keys, environment and help in one table."""

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from distributor.api_fields import Unplaced
from srtm.options.door import HttpDoor
from srtm.text.address import Address
from srtm.text.fields import Duration, ListenAddress


class DistributorOptions(HttpDoor):
    """See `srtm distributor --help`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    http_address: ListenAddress = Field(
        Address("127.0.0.1", 4180),
        description="address to listen on; one that other hosts reach needs --token-file or "
        "--tls-client-auth-policy",
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
        description="how long a broker without contact keeps its share; then the share of a lost "
        "broker can be given to others",
    )
    unplaced: Unplaced = Field(
        "floor",
        description="what a gateway does with messages of a topic that is placed on other brokers: "
        "floor: hold them until the other brokers have given up a small share for it, one message "
        "of burst with the matching rate; reject: refuse them; pass: admit them without a limit",
    )
    forget: bool = Field(
        False,
        description="start even if gateways hold topics and shares that the store has lost: ignore "
        "those, and end limits that only gateways know",
    )
    audit_log: str = Field(
        "", description="file that gets a line of JSON for each change: who, when, what, outcome"
    )
    log_level: Literal["debug", "info", "warn", "error"] = Field(
        "info", description="lowest level that is logged"
    )

    @model_validator(mode="after")
    def _guarded(self) -> "DistributorOptions":
        asks = self.token_file or self.requires_certificates
        if not self.http_address.is_local and not asks:
            raise ValueError(
                f"http-address {self.http_address} is reached from other hosts: give a "
                "token-file, or tls-client-auth-policy, or listen on 127.0.0.1"
            )
        return self
