"""What a publisher can be told of a message, besides OK."""

from srtm.text.errors import SrtmError


class OutcomeUnknown(SrtmError):
    """The connection died after the message was sent: it may be stored or not. It is not sent
    again; who sends it again may store it twice."""


class Refused(SrtmError):
    """An error frame answered the message.

    code, sentence: NSQ's, such as E_BAD_MESSAGE and "PUB message too big"
    A message refused because of its own form or the topic's limit is not stored; where the broker
    failed to write (E_PUB_FAILED, E_MPUB_FAILED without "over the limit"), part of it may be.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{code} {sentence}".strip())
        self.code = code
        self.sentence = sentence


class NotSent(SrtmError):
    """The publisher was closed, or failed, before the message was sent: it is not stored."""
