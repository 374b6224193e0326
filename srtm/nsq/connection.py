"""The client's end of a V2 connection to nsqd or a gateway. No I/O: its owner moves the bytes.

IDENTIFY's answer comes in clear; then, each where it was asked for and the other side has it: TLS,
snappy or deflate, and AUTH. What is sent before waits for the end of that.

    answer --> handshake --> OK inside --> OK packed --> AUTH's answer --> identified
"""

import functools
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from srtm.nsq.commands import MAGIC_V2, NOP, auth, identify
from srtm.nsq.frames import ERROR, HEARTBEAT_DATA, RESPONSE, Frame, FrameError, FrameReader
from srtm.text.address import Address

if TYPE_CHECKING:  # most connections are plain, and go without OpenSSL
    import ssl

    from srtm.nsq.layers import Layer, TlsLayer


log = logging.getLogger("srtm.nsq")
_MOST_ANSWER_BYTES = 64 * 1024
"""of a frame before all is agreed on; nsqd's have some hundred"""
_MOST_UNPACKED_BYTES = 64 << 20
"""of one read: a hostile server's could hold a thousand times its own size"""


class Refused(Exception):
    """The other side does not go on with this connection; the text says why."""


@dataclass(frozen=True, slots=True)
class Features:
    """What a client asks for; the names are go-nsq's and pynsq's.

    tls:         how the other side is verified; None: plain text
    server_name: whom its certificate must name
    auth_secret: sent to an nsqd that requires AUTH
    """

    tls: "ssl.SSLContext | None" = None
    server_name: str = ""
    auth_secret: str = field(default="", repr=False)
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = 6

    def towards(self, host: str) -> "Features":
        """With the host of the address, where the other side's name is not given. A secret that
        would go there in clear text is told of."""
        if self.auth_secret and self.tls is None and not Address(host, 0).is_local:
            _tell_of_clear_text()
        if self.tls is None or self.server_name:
            return self
        return replace(self, server_name=host)

    @property
    def asked(self) -> dict[str, Any]:
        """The keys of IDENTIFY; the secret is none of them."""
        asked: dict[str, Any] = {}
        if self.tls is not None:
            asked["tls_v1"] = True
        if self.snappy:
            asked["snappy"] = True
        if self.deflate:
            asked |= {"deflate": True, "deflate_level": self.deflate_level}
        if asked or self.auth_secret:
            asked["feature_negotiation"] = True
        return asked


PLAIN = Features()


@functools.cache
def _tell_of_clear_text() -> None:
    """Once in a process: nsqd and its clients go on, and so do ours."""
    log.warning("the secret for AUTH goes to other hosts in clear text: give tls-v1 too")


class _Await(Enum):
    """What comes next."""

    ANSWER = auto()
    HANDSHAKE = auto()
    TLS_OK = auto()
    PACKED_OK = auto()
    AUTH = auto()
    FRAMES = auto()


class Connection:
    """A connection that begins with IDENTIFY, takes the answer, and answers heartbeats.

    write:      takes what goes over the wire; it may be replaced
    identified: what was asked for is agreed on, and commands go out as they are sent
    told:       what the answer said, with feature negotiation: nsqd's limits for this connection
    """

    __slots__ = (
        "_awaits",
        "_features",
        "_frames",
        "_held",
        "_layer",
        "_rest",
        "_tls",
        "identified",
        "told",
        "write",
    )

    def __init__(
        self,
        write: Callable[[bytes], None],
        identity: Mapping[str, Any],
        max_frame_bytes: int,
        features: Features = PLAIN,
    ) -> None:
        """write: is given what the connection begins with. max_frame_bytes: of a longer frame the
        other side is no nsqd."""
        self._frames = FrameReader(max_frame_bytes)
        self._features = features
        self._layer: Layer | None = None
        self._tls: TlsLayer | None = None
        self._awaits = _Await.ANSWER
        self._rest = b""  # of a frame that is not whole, before `identified`
        asked = features.asked
        self._held: bytearray | None = bytearray() if asked else None
        self.write = write
        self.identified = False
        self.told: dict[str, Any] = {}
        document = json.dumps({**identity, **asked}, separators=(",", ":")).encode()
        write(MAGIC_V2 + identify(document))

    @property
    def is_plain(self) -> bool:
        """Are bytes of NSQ those of the wire, from the beginning to the end?"""
        return self._layer is None and self._held is None

    @property
    def layer(self) -> "Layer | None":
        """What all bytes go through from `identified` on; None: nothing."""
        return self._layer

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._rest) + self._frames.buffered

    def send(self, data: bytes) -> None:
        """Commands; before `identified` they wait where something is to be agreed on."""
        if self._held is not None:
            self._held += data
        else:
            self.write(data if self._layer is None else self._layer.encode(data))

    def receive(self, data: bytes) -> list[Frame]:
        """The answers and messages that are whole now. Raises Refused, FrameError."""
        raw, ends = self.receive_raw(data)
        frames = []
        start = 0
        for end in ends:
            kind, content = raw[start + 7], raw[start + 8 : end]
            if not self.is_heartbeat(kind, content):
                frames.append(Frame(kind, content))
            start = end
        return frames

    def receive_raw(self, data: bytes) -> tuple[bytes, list[int]]:
        """The bytes of the frames that are whole now, heartbeats among them, and where each one
        ends. Raises Refused, FrameError."""
        if self._layer is not None:
            data = self._decoded(data)
        if not self.identified:
            data = self._agree(data)
        return self._frames.feed_raw(data)

    def is_heartbeat(self, kind: int, content: bytes) -> bool:
        """Was this frame a heartbeat? It is answered then; while something is to be agreed on it
        is not, as the next bytes may have to be those of another layer."""
        if kind != RESPONSE or content != HEARTBEAT_DATA:
            return False
        if self._held is None:
            self._send_now(NOP)
        return True

    def _send_now(self, data: bytes) -> None:
        self.write(data if self._layer is None else self._layer.encode(data))

    def _decoded(self, data: bytes) -> bytes:
        """All that `data` gives. Raises FrameError."""
        from srtm.nsq.layers import LayerError

        layer = self._layer
        assert layer is not None
        if data and layer.ended:
            raise FrameError("it has ended the stream, and more came behind")
        try:
            plain = layer.decode(data)
            if not layer.more:
                return plain
            pieces, size = [plain], len(plain)
            while layer.more:
                pieces.append(layer.decode(b""))
                size += len(pieces[-1])
                if size > _MOST_UNPACKED_BYTES:
                    raise FrameError("what came in one read unpacks to more than 64 MiB")
        except LayerError as error:
            raise FrameError(str(error)) from None
        return b"".join(pieces)

    # --- until all is agreed on ----------------------------------------------------------------

    def _agree(self, data: bytes) -> bytes:
        """Go on from answer to answer. Returns what came behind the last one."""
        data = self._rest + data
        self._rest = b""
        while not self.identified:
            if self._awaits is _Await.HANDSHAKE:
                if not self._shake(data):
                    return b""
                data = self._decoded(b"")
            frame, size = _first_frame(data, self._frames)
            if frame is None:
                self._rest = data
                return b""
            data = data[size:]
            if self.is_heartbeat(*frame):
                continue
            if frame.kind == ERROR:
                raise Refused(_line(frame.data))
            if frame.kind != RESPONSE:
                raise FrameError(_NO_ANSWER)
            data = self._take(frame.data, data)
        return data

    def _shake(self, data: bytes) -> bool:
        """A step of the handshake; True when it is done. Raises Refused."""
        from srtm.nsq.layers import LayerError

        tls = self._tls
        assert tls is not None
        try:
            self.write(tls.handshake(data))
        except LayerError as error:
            self.write(tls.ending())
            raise Refused(str(error)) from None
        if tls.done:
            self._layer = tls
            self._awaits = _Await.TLS_OK
        return tls.done

    def _take(self, content: bytes, behind: bytes) -> bytes:
        """An answer. Returns what came behind it, as it is read from now on."""
        awaited = self._awaits
        if awaited is _Await.ANSWER:
            self.told = _document(content)
            if self._features.tls is not None:
                self._begin_tls(self._features.tls)
                return behind
        elif awaited is _Await.AUTH:
            _document(content)
            self._ready()
            return behind
        elif content != b"OK":
            raise FrameError(_NO_ANSWER)
        if awaited is not _Await.PACKED_OK and self._begin_packing():
            return self._unpacked(behind)
        self._authorize()
        return behind

    def _begin_tls(self, context: "ssl.SSLContext") -> None:
        from srtm.nsq.layers import LayerError, TlsLayer

        if not self.told.get("tls_v1"):
            raise Refused("it offers no TLS, and this side does not go on in clear text")
        try:
            self._tls = TlsLayer(context, self._features.server_name)
        except LayerError as error:
            raise Refused(str(error)) from None
        self._awaits = _Await.HANDSHAKE
        self.write(self._tls.handshake(b""))

    def _begin_packing(self) -> bool:
        """Compression is a wish: an nsqd without it goes on without."""
        inner: Layer
        if self._features.snappy and self.told.get("snappy"):
            from srtm.nsq.layers.snappy import SnappyLayer

            inner = SnappyLayer()
        elif self._features.deflate and self.told.get("deflate"):
            from srtm.nsq.layers.deflate import DeflateLayer

            inner = DeflateLayer(_level(self.told.get("deflate_level", 6)))
        else:
            return False
        from srtm.nsq.layers.layer import Stack

        self._layer = inner if self._tls is None else Stack(self._tls, inner)
        self._awaits = _Await.PACKED_OK
        return True

    def _unpacked(self, behind: bytes) -> bytes:
        """What came behind the answer is packed already. In TLS it has been decrypted."""
        if self._tls is None:
            return self._decoded(behind)
        from srtm.nsq.layers.layer import Stack

        assert isinstance(self._layer, Stack)
        return self._layer.decode_inner(behind)

    def _authorize(self) -> None:
        if not self.told.get("auth_required"):
            self._ready()
            return
        if not self._features.auth_secret:
            raise Refused("it requires AUTH, and no secret is given: see auth-secret-file")
        self._awaits = _Await.AUTH
        self._send_now(auth(self._features.auth_secret.encode()))

    def _ready(self) -> None:
        self._awaits = _Await.FRAMES
        self.identified = True
        held, self._held = self._held, None
        if held:
            self._send_now(bytes(held))


_NO_ANSWER = "its answer to IDENTIFY is not nsqd's"


def _level(told: object) -> int:
    """Raises FrameError."""
    if not isinstance(told, int) or not 1 <= told <= 9:
        raise FrameError(_NO_ANSWER)
    return told


def _document(content: bytes) -> dict[str, Any]:
    """Raises FrameError."""
    try:
        told = {} if content == b"OK" else json.loads(content)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise FrameError(_NO_ANSWER)
    return told


def _first_frame(data: bytes, frames: FrameReader) -> tuple[Frame | None, int]:
    """The first frame and its size; None while it is not whole. Raises FrameError."""
    end = frames.end_of_first(data)
    if not end and len(data) > _MOST_ANSWER_BYTES:
        raise FrameError(_NO_ANSWER)
    return (Frame(data[7], data[8:end]) if end else None), end


def _line(content: bytes) -> str:
    return " ".join(content[:300].decode(errors="replace").split())
