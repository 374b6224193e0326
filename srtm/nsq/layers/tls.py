"""TLS by OpenSSL over memory: ciphertext in, plain bytes out.

Ciphertext is cut at the headers of records (RFC 8446, section 5.1). So it is known how many records
there are to decrypt, what is no TLS is told from its first byte, and no more than one record that
is not whole is ever held.
"""

import contextlib
import ssl
from typing import Any

from srtm.nsq.layers.layer import LayerError
from srtm.text.certificates import why_tls_failed

_HEADER_BYTES = 5
_MOST_RECORD_BYTES = 16_384 + 2048  # RFC 5246, section 6.2.3; TLS 1.3 allows less
_MOST_PLAIN_BYTES = 16_384
_MOST_HANDSHAKE_RECORDS = 128
"""A handshake of certificates takes a dozen. In records of one byte a single hello would take a
third of a second of arithmetic."""
_MOST_UNSENT_BYTES = 16_384
"""Answers to key updates go with what is sent next; who asks for more of them takes nothing."""
_KINDS = range(20, 24)  # change_cipher_spec, alert, handshake, application_data
_ALERT = 21


class TlsLayer:
    """One side of a connection. `handshake` is called until it is done, `decode` from then on.

    done: the handshake is complete
    """

    __slots__ = ("_in", "_out", "_records", "_rest", "_tls", "done", "ended")

    more = False

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        """server_name: whom a client expects at the other side; None at a server. Raises LayerError
        where no certificate can hold that name."""
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        is_server = context.protocol == ssl.PROTOCOL_TLS_SERVER
        try:
            self._tls = context.wrap_bio(
                self._in, self._out, server_side=is_server, server_hostname=server_name or None
            )
        except (ValueError, TypeError):
            raise LayerError(f"{server_name!a} cannot be the name in a certificate") from None
        self._records = 0  # of the handshake
        self._rest = b""  # of a record that is not whole, or of records behind the handshake
        self.done = False
        self.ended = False

    @property
    def buffered(self) -> int:
        return len(self._rest)

    def handshake(self, data: bytes) -> bytes:
        """What is to be sent now. What comes behind the handshake waits for `decode`. Raises
        LayerError, after which `ending` is still to be sent."""
        data = self._rest + data
        position = 0
        while not self.done:
            end = _record_end(data, position)
            if end == position and position < len(data):
                break  # a record is not whole
            self._records += end > position
            if self._records > _MOST_HANDSHAKE_RECORDS:
                raise LayerError(f"a TLS handshake of more than {_MOST_HANDSHAKE_RECORDS} records")
            self._in.write(data[position:end])
            position = end
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if position == len(data):
                    break
            except (ssl.SSLError, ValueError) as error:
                raise _error(error) from None
            else:
                self.done = True
        self._rest = data[position:]
        return self._out.read()

    def decode(self, data: bytes) -> bytes:
        if self.ended:
            return b""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        # The commonest read by far is one whole record.
        length = len(data)
        end, count = 0, 0
        while end < length:
            after = _record_end(data, end)
            if after == end:
                self._rest = data[end:]
                data = data[:end]
                break
            end = after
            count += 1
        if not count:
            return b""
        self._in.write(data)
        try:
            if count == 1:
                plain = self._tls.read(_MOST_PLAIN_BYTES)
                self.ended = not plain  # empty records are passed over
                return plain
            return self._read_records(count)
        except ssl.SSLWantReadError:
            self._check_unsent()
            return b""
        except ssl.SSLZeroReturnError:  # and ours has gone before
            self.ended = True
            return b""
        except ssl.SSLError as error:
            raise _error(error) from None

    def _read_records(self, count: int) -> bytes:
        """Raises LayerError, ssl.SSLError."""
        plain: list[bytes] = []
        try:
            while len(plain) < count and not self.ended:
                plain.append(self._tls.read(_MOST_PLAIN_BYTES))
                self.ended = not plain[-1]
        except ssl.SSLWantReadError:
            pass  # a record of them held nothing for us, as a new key
        except ssl.SSLZeroReturnError:
            self.ended = True
        self._check_unsent()
        return b"".join(plain)

    def _check_unsent(self) -> None:
        """Raises LayerError."""
        if self._out.pending > _MOST_UNSENT_BYTES:
            raise LayerError("TLS failed: more new keys than anybody needs")

    def encode(self, data: bytes) -> bytes:
        if data:
            with contextlib.suppress(ssl.SSLError):  # it has failed, and `_out` says why
                self._tls.write(data)
        return self._out.read()

    def ending(self) -> bytes:
        if self.done:
            # It waits for the other side's last word; we do not.
            with contextlib.suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
        return self._out.read()

    @property
    def version(self) -> str:
        return self._tls.version() or ""

    @property
    def cipher(self) -> str:
        cipher = self._tls.cipher()
        return cipher[0] if cipher else ""

    @property
    def common_name(self) -> str:
        return common_name(self._tls)


def common_name(side: ssl.SSLObject | ssl.SSLSocket) -> str:
    """That of the certificate which the other side has shown and which was verified; empty without.
    Of several it is the last one, as at Go's programs."""
    found = ""
    certificate: Any = side.getpeercert() or {}
    for names in certificate.get("subject", ()):
        for key, value in names:
            if key == "commonName":
                found = str(value)
    return found


def is_in_crumbs(data: bytes) -> bool:
    """Are these more records than any handshake takes? Raises LayerError where they are none."""
    position = 0
    for _ in range(_MOST_HANDSHAKE_RECORDS + 1):
        end = _record_end(data, position)
        if end == position:
            return False
        position = end
    return True


def _record_end(data: bytes, start: int) -> int:
    """Where the record at `start` ends; `start` while it is not whole. Raises LayerError."""
    if len(data) <= start:
        return start
    if data[start] not in _KINDS or (len(data) > start + 1 and data[start + 1] != 3):
        raise LayerError(
            "what came is no TLS: is the other side set to plain text?", is_foreign=True
        )
    if len(data) < start + _HEADER_BYTES:
        return start
    size = data[start + 3] << 8 | data[start + 4]
    if size > _MOST_RECORD_BYTES:
        raise LayerError(f"a TLS record of {size} bytes, where {_MOST_RECORD_BYTES} are allowed")
    end = start + _HEADER_BYTES + size
    return end if end <= len(data) else start


def _error(error: Exception) -> LayerError:
    return LayerError(f"TLS failed: {why_tls_failed(error)}")
