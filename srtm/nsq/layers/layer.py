"""The contract of a layer, and layers one above the other."""

from typing import Protocol


class LayerError(Exception):
    """What came cannot be this layer's; the text says why. The connection is lost then.

    is_foreign: it is of another protocol from its first byte on
    """

    def __init__(self, why: str, is_foreign: bool = False) -> None:
        super().__init__(why)
        self.is_foreign = is_foreign


class Layer(Protocol):
    """Bytes of the wire in, bytes of NSQ out, and the other way round.

    more:     what has been taken gives more, by `decode(b"")`
    ended:    the other side has said that no more comes; what comes behind that is dropped
    buffered: bytes that have been taken and are not decoded yet
    """

    @property
    def more(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    @property
    def buffered(self) -> int: ...

    def decode(self, data: bytes) -> bytes:
        """What is whole now; at most some hundred KiB at once. While `more` is true it takes b""
        alone. Raises LayerError."""

    def encode(self, data: bytes) -> bytes:
        """What goes over the wire, which the other side can read at once. Raises nothing: a layer
        that has failed has no more to say."""

    def ending(self) -> bytes:
        """The last that goes over the wire."""


class Stack:
    """Compression inside TLS: a layer made of two."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Layer, inner: Layer) -> None:
        """outer: the one next to the wire"""
        self._outer = outer
        self._inner = inner

    @property
    def more(self) -> bool:
        return self._inner.more or self._outer.more

    @property
    def ended(self) -> bool:
        return self._inner.ended or self._outer.ended

    @property
    def buffered(self) -> int:
        return self._inner.buffered + self._outer.buffered

    def decode(self, data: bytes) -> bytes:
        return self._inner.decode(b"" if self._inner.more else self._outer.decode(data))

    def decode_inner(self, data: bytes) -> bytes:
        """What the outer layer has decoded before the inner one was there."""
        return self._inner.decode(data)

    def encode(self, data: bytes) -> bytes:
        return self._outer.encode(self._inner.encode(data))

    def ending(self) -> bytes:
        return self._outer.encode(self._inner.ending()) + self._outer.ending()
