"""IDENTIFY: what a client asks for, checked as nsqd checks it, and what it is told. No I/O."""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from srtm.nsq.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class Server:
    """What nsqd allows and announces; durations in milliseconds, sizes in bytes.

    tls, snappy, deflate: what the door offers; requires_tls, requires_auth: what it insists on
    """

    version: str = "1.3.0"
    max_rdy_count: int = 2500
    max_msg_timeout: int = 900_000
    msg_timeout: int = 60_000
    max_deflate_level: int = 6
    max_heartbeat_interval: int = 60_000
    heartbeat_interval: int = 30_000
    max_output_buffer_size: int = 65_536
    output_buffer_size: int = 16_384
    max_output_buffer_timeout: int = 30_000
    min_output_buffer_timeout: int = 25
    output_buffer_timeout: int = 250
    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    requires_tls: bool = False
    requires_auth: bool = False


@dataclass(frozen=True, slots=True)
class Agreed:
    """What stands between the client's commands and the wire once IDENTIFY is answered."""

    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = 6

    @property
    def is_plain(self) -> bool:
        return not (self.tls or self.snappy or self.deflate)


@dataclass(frozen=True, slots=True)
class Identity:
    """One client's IDENTIFY, as sent; 0 asks for the default, heartbeat_interval -1 for none.

    srtm_publisher: id of a publisher that the Load Distributor knows; a key that nsqd ignores
    """

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    heartbeat_interval: int = 0
    output_buffer_size: int = 0
    output_buffer_timeout: int = 0
    feature_negotiation: bool = False
    tls_v1: bool = False
    deflate: bool = False
    deflate_level: int = 0
    snappy: bool = False
    sample_rate: int = 0
    msg_timeout: int = 0
    topology_region: str = field(default="")
    topology_zone: str = field(default="")
    srtm_publisher: str = ""

    def heartbeat_ms(self, server: Server) -> int:
        """The interval that holds; 0: no heartbeats."""
        if self.heartbeat_interval == -1:
            return 0
        return self.heartbeat_interval or server.heartbeat_interval


_TYPES = {name: f.type for name, f in Identity.__dataclass_fields__.items()}


_HALF = re.compile("[\ud800-\udfff]")
"""Half of a character of UTF-16, as an escape may give it, and how Python decodes a byte that is no
UTF-8. Go's decoder reads U+FFFD for each. A text that holds one cannot be written as UTF-8."""

_KEPT = ("heartbeat_interval", "output_buffer_size", "output_buffer_timeout", "msg_timeout")
"""What a later IDENTIFY of the same connection leaves as it is where it says nothing."""


def parse_identity(body: bytes, server: Server, earlier: Identity | None = None) -> Identity:
    """Raises ProtocolError with nsqd's own code and sentence."""
    try:
        # Go's decoder takes null for an empty object.
        document = json.loads(body.decode(errors="surrogateescape"), parse_constant=_refuse)
        if not isinstance(document, dict | None):
            raise ValueError("not an object")
        values: dict[str, Any] = {}
        for key, value in (document or {}).items():
            name = str(key).lower()  # Go's decoder ignores case
            kind = _TYPES.get(name)
            if kind is None or value is None:
                continue
            if type(value) is not kind:
                raise ValueError(f"{key} is not a {kind}")
            if kind is int and value.bit_length() >= (32 if name == "sample_rate" else 64):
                raise ValueError(f"{key} does not fit")
            values[name] = _HALF.sub("\ufffd", value) if kind is str else value
    except (ValueError, RecursionError):
        raise ProtocolError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
    identity = Identity(**values)
    _check("heartbeat interval", identity.heartbeat_interval, 1000, server.max_heartbeat_interval)
    _check(
        "output buffer timeout",
        identity.output_buffer_timeout,
        server.min_output_buffer_timeout,
        server.max_output_buffer_timeout,
    )
    _check("output buffer size", identity.output_buffer_size, 64, server.max_output_buffer_size)
    if not 0 <= identity.sample_rate <= 99:
        raise ProtocolError(
            "E_BAD_BODY", f"IDENTIFY sample rate ({identity.sample_rate}) is invalid"
        )
    if identity.msg_timeout != 0:
        if identity.msg_timeout == -1:
            raise ProtocolError("E_BAD_BODY", "IDENTIFY msg timeout (-1) is invalid")
        _check("msg timeout", identity.msg_timeout, 1000, server.max_msg_timeout)
    if identity.tls_v1 and identity.feature_negotiation and not server.tls:
        # A client that negotiates would go on in clear text, its secrets included. Without
        # negotiation nsqd looks at no feature, and the client begins no TLS.
        raise ProtocolError("E_IDENTIFY_FAILED", "TLS is not available here; set tls_v1 to false")
    gets = agreed(identity, server)
    if gets.snappy and gets.deflate:
        raise ProtocolError(
            "E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression"
        )
    if earlier is not None:
        kept = {name: getattr(identity, name) or getattr(earlier, name) for name in _KEPT}
        identity = replace(identity, **kept)
    return identity


def publisher_name(identity: Identity, host: str) -> str:
    """Who publishes, for traces: its id where it gives one, else as itself on its host. Never with
    a port, which is another one at each reconnect."""
    return (identity.srtm_publisher or f"{identity.client_id}@{host}")[:_MOST_OF_A_NAME]


_MOST_OF_A_NAME = 256  # characters


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _check(what: str, value: int, low: int, high: int) -> None:
    if value not in (0, -1) and not low <= value <= high:
        raise ProtocolError("E_BAD_BODY", f"IDENTIFY {what} ({value}) is invalid")


def agreed(identity: Identity, server: Server) -> Agreed:
    """What the client asked for and gets; nothing without feature negotiation."""
    asks = identity.feature_negotiation
    deflate = asks and identity.deflate and server.deflate
    level = identity.deflate_level if deflate and identity.deflate_level > 0 else 6
    return Agreed(
        tls=asks and identity.tls_v1 and server.tls,
        snappy=asks and identity.snappy and server.snappy,
        deflate=deflate,
        deflate_level=min(level, server.max_deflate_level),
    )


def answer(identity: Identity, server: Server) -> bytes:
    """What the client is told: b"OK", or with feature negotiation nsqd's JSON."""
    if not identity.feature_negotiation:
        return b"OK"
    no_buffer = identity.output_buffer_size == -1
    gets = agreed(identity, server)
    return json.dumps(
        {
            "max_rdy_count": server.max_rdy_count,
            "version": server.version,
            "max_msg_timeout": server.max_msg_timeout,
            "msg_timeout": identity.msg_timeout or server.msg_timeout,
            "tls_v1": gets.tls,
            "deflate": gets.deflate,
            "deflate_level": gets.deflate_level,
            "max_deflate_level": server.max_deflate_level,
            "snappy": gets.snappy,
            "sample_rate": identity.sample_rate,
            "auth_required": server.requires_auth,
            "output_buffer_size": 1
            if no_buffer
            else identity.output_buffer_size or server.output_buffer_size,
            "output_buffer_timeout": 0
            if no_buffer or identity.output_buffer_timeout == -1
            else identity.output_buffer_timeout or server.output_buffer_timeout,
        },
        separators=(",", ":"),
    ).encode()


def replay(identity: Identity, address: str) -> dict[str, Any]:
    """The IDENTIFY that a subscriber's own connection to nsqd begins with: the client's,
    without features, its answer always JSON. A client that named nothing shows as its address,
    as it would at nsqd."""
    document = asdict(identity)
    document.update(
        feature_negotiation=True,
        tls_v1=False,
        deflate=False,
        snappy=False,
        client_id=identity.client_id or address,
        hostname=identity.hostname or address,
    )
    return document
