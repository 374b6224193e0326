"""nsqd's HTTP API, as far as the gateway needs it: limits, health, topics, nsqlookupd's address."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from srtm.gateway.options import GatewayOptions
from srtm.host.certificates import client_context
from srtm.http.bearer import read_token
from srtm.http.client import TIMEOUT_SECONDS, Answer, Endpoint, call
from srtm.http.nsqd import NsqdDoor, https_port, stats_path, why_closed
from srtm.nsq.commands import Limits
from srtm.nsq.connection import PLAIN, Connection, Features, Refused
from srtm.nsq.frames import FrameError
from srtm.nsq.identify import Server
from srtm.text.address import Address
from srtm.text.errors import UnavailableError

TESTED_VERSION = "1.3."
_MAX_FRAME_BYTES = 64 * 1024  # of an answer to IDENTIFY


@dataclass(frozen=True)
class Facts:
    """What nsqd says of itself at start."""

    limits: Limits
    server: Server
    info: dict[str, Any]
    broadcast: dict[str, Any]
    mem_queue_size: int
    topics: list[str] = field(default_factory=list)


class NsqdHttp:
    """GET, PUT and POST to one nsqd. Raises UnavailableError when it does not answer."""

    def __init__(self, endpoint: Endpoint, features: Features = PLAIN) -> None:
        """features: what its V2 door is spoken to with"""
        self._endpoint = endpoint
        self._features = features
        self.address = endpoint.address

    async def call(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """The response, whatever its status."""
        if body is None and method in ("POST", "PUT"):
            body = b""
        try:
            return await call(self._endpoint, method, path, body)
        except UnavailableError as error:
            why = str(error).removeprefix(f"{self.address}: ")
            raise UnavailableError(f"nsqd at {self.address} does not answer: {why}") from None

    async def get(self, path: str) -> Any:
        """Its JSON, or its text where it is none."""
        answer = await self.call("GET", path)
        port = https_port(answer)
        if port is not None:
            address = f"--nsqd-http-address=https://HOST:{port}"
            remedy = f"give {address} and --nsqd-tls-root-ca-file"
            raise UnavailableError(f"nsqd at {why_closed(self.address, port, remedy)}")
        if answer.status != 200:
            raise UnavailableError(
                f"nsqd at {self.address} answered {path} with {answer.status}: {answer.error}"
            )
        return answer.document

    async def healthy(self) -> bool:
        """Does /ping say OK? NOK means that nsqd cannot write to its disk."""
        response = await self.call("GET", "/ping")
        return response.status == 200

    async def stats(
        self, topic: str = "", channel: str = "", clients: bool = False, memory: bool = False
    ) -> dict[str, Any]:
        """Topics and channels: all, or those of the names."""
        document = await self.get(stats_path(topic, channel, clients, memory))
        if not isinstance(document, dict):
            raise UnavailableError(
                f"nsqd at {self.address} answered /stats, but not with a JSON object"
            )
        return document

    async def set_lookupd(self, addresses: tuple[str, ...]) -> None:
        """Tell nsqd where to register; an empty list withdraws it."""
        body = json.dumps(list(addresses)).encode()
        response = await self.call("PUT", "/config/nsqlookupd_tcp_addresses", body)
        if response.status != 200:
            raise UnavailableError(
                f"nsqd at {self.address} refused the nsqlookupd addresses: status {response.status}"
            )

    async def facts(self) -> Facts:
        """Raises UnavailableError where nsqd is away, is no nsqd, or wants TLS or AUTH without
        that we have it."""
        info = await self.get("/info")
        if not isinstance(info, dict) or not isinstance(info.get("version"), str):
            raise UnavailableError(f"what listens at {self.address} is not an nsqd")
        answers = await asyncio.gather(*(self.get(f"/config/{name}") for name in _OPTIONS))
        option = dict(zip(_OPTIONS, answers, strict=True))
        for name in _NUMBERS:
            if type(option[name]) is not int:
                raise UnavailableError(
                    f"what listens at {self.address} is not an nsqd: {name} is {option[name]!r}"
                )
        if option["tls_required"] not in (0, False) and self._features.tls is None:
            raise UnavailableError(
                f"nsqd at {self.address} requires TLS: give --nsqd-tls-root-ca-file, by which its "
                "certificate is verified"
            )
        if option["auth_http_addresses"] and not self._features.auth_secret:
            raise UnavailableError(
                f"nsqd at {self.address} requires AUTH: give --nsqd-auth-secret-file, with a "
                "secret that may publish and subscribe to every topic"
            )
        stats = await self.stats()
        option |= {name: option[name] // 1_000_000 for name in _DURATIONS}  # nsqd's are nanoseconds
        return Facts(
            limits=Limits(
                option["max_msg_size"], option["max_body_size"], option["max_req_timeout"]
            ),
            server=Server(
                version=info["version"], **{name: option[name] for name in _OF_CONNECTIONS}
            ),
            info=info,
            mem_queue_size=option["mem_queue_size"],
            broadcast={name: option[name] for name in _OPTIONS if name.startswith("broadcast")},
            topics=_names_in(stats, self.address),
        )


def reach_nsqd(options: GatewayOptions) -> tuple[Features, Endpoint]:
    """How nsqd's TCP and HTTP doors are spoken to. Raises UsageError."""
    files = options.nsqd_tls_files
    name = options.nsqd_tls_server_name or _host(options.nsqd_tcp_address)
    tls = None if files is None else client_context(files)
    secret = read_token(options.nsqd_auth_secret_file, "--nsqd-auth-secret-file", shortest=1)
    door = NsqdDoor(options.nsqd_http_address, tls, name)
    return Features(tls=tls, server_name=name, auth_secret=secret), door.endpoint


def _host(address: str) -> str:
    """The host of an address; a unix socket is on this one."""
    return "localhost" if "/" in address else Address.parse(address).host


async def check_tcp(address: str, features: Features = PLAIN) -> None:
    """Raises UnavailableError where no nsqd answers at its TCP address."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            if "/" in address:
                reader, writer = await asyncio.open_unix_connection(address)
            else:
                reader, writer = await asyncio.open_connection(*Address.parse(address, lowest=0))
            try:
                v2 = Connection(writer.write, {}, _MAX_FRAME_BYTES, features)
                while not v2.identified:
                    data = await reader.read(_MAX_FRAME_BYTES)
                    if not data:
                        raise ConnectionError("it closed the connection")
                    v2.receive(data)
                return
            finally:
                writer.close()
    except TimeoutError:
        why = f"no answer within {TIMEOUT_SECONDS:g}s"
    except FrameError:
        why = "it speaks another protocol"
    except Refused as error:
        why = str(error)
    except OSError as error:
        why = error.strerror or str(error)
    raise UnavailableError(f"nsqd at {address} takes no V2 connection: {why}")


def _names_in(stats: dict[str, Any], address: str) -> list[str]:
    try:
        return [str(topic["topic_name"]) for topic in stats.get("topics") or []]
    except (KeyError, TypeError):
        raise UnavailableError(
            f"what listens at {address} is not an nsqd: its /stats has another shape"
        ) from None


_DURATIONS = (
    "max_req_timeout",
    "max_msg_timeout",
    "msg_timeout",
    "max_heartbeat_interval",
    "max_output_buffer_timeout",
    "min_output_buffer_timeout",
    "output_buffer_timeout",
)
_OF_CONNECTIONS = (*_DURATIONS[1:], "max_rdy_count", "max_deflate_level", "max_output_buffer_size")
"""What `Server` tells of them."""
_NUMBERS = (
    "max_msg_size",
    "max_body_size",
    "max_req_timeout",
    *_OF_CONNECTIONS,
    "mem_queue_size",
)
_OPTIONS = (
    *_NUMBERS,
    "tls_required",
    "auth_http_addresses",
    "broadcast_address",
    "broadcast_tcp_port",
    "broadcast_http_port",
)
