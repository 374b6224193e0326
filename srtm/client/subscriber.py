"""Consumers by pynsq, set for low latency."""

from collections.abc import Callable, Sequence
from typing import Any

import nsq

from srtm.text.errors import UsageError


class _Reader(nsq.Reader):  # type: ignore[misc]
    """pynsq's Reader without nsqd's output buffer, which may hold a message for 250 ms. Its
    constructor refuses -1, so it is set in IDENTIFY's own event."""

    def _on_connection_identify(self, conn: Any, data: dict[str, Any], **kwargs: Any) -> None:
        data["output_buffer_size"] = -1
        super()._on_connection_identify(conn, data, **kwargs)


def subscribe(
    topic: str,
    channel: str,
    handler: Callable[[nsq.Message], bool],
    *,
    nsqd: Sequence[str] = (),
    lookupd: Sequence[str] = (),
    max_in_flight: int = 100,
    **options: Any,
) -> nsq.Reader:
    """A pynsq Reader that gets each message at once; call it in the loop that is to run it.

    handler: takes the message; True ends it with FIN, False with REQ (pynsq's rules)
    nsqd:    host:port of gateways (or nsqds); lookupd: HTTP addresses of nsqlookupds
    options: as nsq.Reader takes them, but for output_buffer_size and output_buffer_timeout
    Its Reader.close() ends it. Raises UsageError.
    """
    if not nsqd and not lookupd:
        raise UsageError("a subscriber needs nsqd= or lookupd=, a list of host:port")
    for name in ("output_buffer_size", "output_buffer_timeout"):
        if name in options:
            raise UsageError(f"{name}= is what subscribe() sets; use nsq.Reader to choose it")
    return _Reader(
        topic=topic,
        channel=channel,
        message_handler=handler,
        nsqd_tcp_addresses=list(nsqd),
        lookupd_http_addresses=list(lookupd),
        max_in_flight=max_in_flight,
        **options,
    )
