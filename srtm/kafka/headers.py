"""The headers of Kafka's records, as far as they can be read."""

from operator import length_hint
from typing import Any

from confluent_kafka import Message


def headers_of(records: list[Message]) -> list[Any]:
    """The headers of each record; None for a record that has none.

    A name that is no UTF-8 makes confluent-kafka 2.16 fail, and leave behind a list with a hole at
    which the interpreter dies. Such a record goes on without headers.
    """
    while True:
        left = iter(records)
        try:
            return list(map(Message.headers, left))
        except (SystemError, UnicodeError):
            records[len(records) - length_hint(left) - 1].set_headers([])
