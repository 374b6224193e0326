"""How a connection with TLS or compression is read: what is plain now, at the stamp of its bytes.

A record of TLS and a chunk of snappy are whole when their last byte has come, and so is what they
hold: a message's arrival is that of the segment which ended its record.
"""

from kernel.stamps import Pieces, Reader
from srtm.nsq.layers.layer import Layer

_MOST_READS = 4
"""that bring no byte for the commands, as padding does; then other clients have their turn"""

_MOST_BYTES = 256 * 1024
"""for the commands, of one read: many small segments may hold chunks that are big"""


class Nothing(Reader):
    """The reader of a connection that is closed."""

    more = False

    def read(self) -> Pieces:
        return []


NOTHING = Nothing()


class LayeredReader(Reader):
    """Reads through `layer` what another reader reads."""

    def __init__(self, reads: Reader, layer: Layer, stamp: int) -> None:
        """stamp: of what the layer holds already"""
        self.more = False
        self._reads = reads
        self._layer = layer
        # Read, and not decoded while the layer has more of what came before.
        self._left: Pieces = [(b"", stamp)]
        self._stamp = stamp

    @property
    def holds(self) -> bool:
        """Would a read give something, or the end, though the socket has nothing?"""
        return self._layer.more or bool(self._left) or self._layer.ended

    @property
    def buffered(self) -> int:
        """Bytes that are read and not decoded."""
        return self._layer.buffered + sum(len(data) for data, _ in self._left)

    def read(self) -> Pieces:
        """As any reader; one piece without a byte where a turn's reads have brought nothing."""
        layer = self._layer
        for _ in range(_MOST_READS):
            if layer.ended and not layer.more:
                return []
            held = self.holds
            pieces = self._rest() if held else self._reads.read()
            if not pieces and not layer.more:
                return []
            plain = self._decoded(pieces)
            # What came while it held something has been told of, once (see `EDGE`).
            self.more = held or self._reads.more or self.holds
            if plain:
                return plain
        return [(b"", self._stamp)]

    def _rest(self) -> Pieces:
        """What is to be decoded next, where the layer has no more of what is before."""
        if self._layer.more:
            return []
        left, self._left = self._left, []
        return left

    def _decoded(self, pieces: Pieces) -> Pieces:
        """Raises LayerError."""
        layer = self._layer
        if layer.more:
            data = layer.decode(b"")
            return [(data, self._stamp)] if data else []
        plain: Pieces = []
        size = 0
        for number, (data, stamp) in enumerate(pieces):
            decoded = layer.decode(data)
            if decoded:
                plain.append((decoded, stamp))
                size += len(decoded)
            if layer.more or size >= _MOST_BYTES:
                # As much as a turn takes: the rest waits, packed.
                self._stamp = stamp
                self._left = pieces[number + 1 :] + self._left
                break
        return plain

    def close(self) -> None:
        self._reads.close()
