"""A client between IDENTIFY's answer and the first byte that goes through what was agreed on.

    in clear --> handshake --> OK inside --> OK packed --> the client is read through its layers

Each step is taken where IDENTIFY asked for it and the gateway offers it. Bytes that came behind
IDENTIFY are in clear: whoever put them there, they do not run.
"""

from typing import Protocol

from kernel.stamps import Reader
from srtm.gateway.handshakes import Handshakes
from srtm.host.certificates import Renewed
from srtm.nsq.errors import ProtocolError
from srtm.nsq.frames import OK_FRAME
from srtm.nsq.identify import Agreed
from srtm.nsq.layers import DeflateLayer, Layer, LayerError, SnappyLayer, Stack, TlsLayer


class Securable(Protocol):
    """The client."""

    address: str
    closed: bool
    reads: Reader

    def write(self, data: bytes) -> None: ...
    def write_wire(self, data: bytes) -> None:
        """Send bytes that go through no layer."""

    def fail(self, error: ProtocolError) -> None: ...
    def close(self) -> None: ...

    def go_through(self, layer: Layer) -> None:
        """What is written from now on goes through `layer`."""

    def read_through(self, layer: Layer, stamp: int) -> None:
        """What comes from now on has gone through `layer`, which may hold some of it already.
        stamp: of that."""

    def stay_in_clear(self) -> None:
        """Nothing comes of it."""


class Securing:
    """tls: of a client that has asked for it, once IDENTIFY is answered"""

    def __init__(
        self, client: Securable, agreed: Agreed, renewed: Renewed | None, handshakes: Handshakes
    ) -> None:
        self._client = client
        self._agreed = agreed
        self._renewed = renewed
        self._handshakes = handshakes
        self.tls: TlsLayer | None = None

    @property
    def closed(self) -> bool:
        return self._client.closed

    def begin(self) -> None:
        """IDENTIFY is answered."""
        if self._agreed.tls and self._renewed is not None:
            self.tls = TlsLayer(self._renewed.context)
            self._handshakes.begin(self)
            self._handshakes.want(self)
        else:
            self._compress(0)

    def readable(self) -> None:
        """Something has come; before IDENTIFY is answered it waits."""
        if self.tls is not None:
            self._handshakes.want(self)

    def left(self) -> None:
        """The client's connection is closed."""
        self._handshakes.left(self)

    def shake(self) -> bool:
        """Go on with what has come. Is the handshake over?"""
        client, tls = self._client, self.tls
        assert tls is not None
        stamp = 0
        while not tls.done:
            try:
                pieces = client.reads.read()
            except BlockingIOError:
                return False
            except OSError:
                pieces = []
            if not pieces:
                client.close()
                return False
            stamp = pieces[-1][1]
            try:
                client.write_wire(tls.handshake(b"".join(data for data, _ in pieces)))
            except LayerError as error:
                self._failed(error)
                return False
            if client.closed:
                return False
        client.go_through(tls)
        client.write(OK_FRAME)
        self._compress(stamp)
        return not client.closed

    def shake_late(self) -> None:
        """No handshake has come: the client may have gone on in clear text."""
        self._handshakes.tell(self._client.address, "TLS failed: nothing came within 5 s")
        self._fail_in_clear("no TLS handshake came within 5 s")

    def _compress(self, stamp: int) -> None:
        """The last step. stamp: of what came last, of which the handshake may have left some."""
        client, agreed = self._client, self._agreed
        layer: Layer | None = self.tls
        if agreed.snappy or agreed.deflate:
            inner: Layer = SnappyLayer() if agreed.snappy else DeflateLayer(agreed.deflate_level)
            layer = inner if self.tls is None else Stack(self.tls, inner)
            client.go_through(layer)
            client.write(OK_FRAME)
        if not client.closed:
            assert layer is not None
            client.read_through(layer, stamp)

    def _failed(self, error: LayerError) -> None:
        self._handshakes.tell(self._client.address, str(error))
        if error.is_foreign:
            self._fail_in_clear(str(error))
            return
        assert self.tls is not None
        self._client.write_wire(self.tls.ending())
        self._client.close()

    def _fail_in_clear(self, why: str) -> None:
        self.left()
        self._client.stay_in_clear()
        self._client.fail(ProtocolError("E_IDENTIFY_FAILED", f"IDENTIFY failed: {why}"))
