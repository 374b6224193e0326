"""Every error of the NSQ V2 protocol: code, whether it ends the connection, HTTP status, meaning.

nsqd keeps a connection after an error that is not fatal; go-nsq and pynsq rely on the same table.
"""

from typing import NamedTuple


class Kind(NamedTuple):
    fatal: bool
    http_status: int
    meaning: str


ERRORS: dict[str, Kind] = {
    "E_INVALID": Kind(True, 400, "a command that is unknown, malformed or not allowed now"),
    "E_BAD_PROTOCOL": Kind(True, 400, "the connection did not begin with the V2 magic"),
    "E_BAD_TOPIC": Kind(True, 400, "a topic name that NSQ does not allow"),
    "E_BAD_CHANNEL": Kind(True, 400, "a channel name that NSQ does not allow"),
    "E_BAD_BODY": Kind(True, 413, "a command body of a wrong size or content"),
    "E_BAD_MESSAGE": Kind(True, 413, "a message that is empty, too big or cut short"),
    "E_PUB_FAILED": Kind(True, 503, "PUB was not stored, or is over the topic's limit"),
    "E_MPUB_FAILED": Kind(True, 503, "MPUB was not stored whole, or is over the topic's limit"),
    "E_DPUB_FAILED": Kind(True, 503, "DPUB was not stored, or is over the topic's limit"),
    "E_SUB_FAILED": Kind(True, 503, "the channel cannot take this consumer"),
    "E_IDENTIFY_FAILED": Kind(True, 400, "the features asked for cannot be combined or had"),
    "E_AUTH_DISABLED": Kind(True, 403, "AUTH sent to a broker that does not use it"),
    "E_AUTH_FAILED": Kind(True, 403, "AUTH was refused"),
    "E_AUTH_ERROR": Kind(True, 500, "AUTH could not be decided"),
    "E_AUTH_FIRST": Kind(True, 403, "AUTH is needed before this command"),
    "E_UNAUTHORIZED": Kind(True, 403, "not allowed for this identity"),
    "E_FIN_FAILED": Kind(False, 400, "FIN of a message that is not in flight here"),
    "E_REQ_FAILED": Kind(False, 400, "REQ of a message that is not in flight here"),
    "E_TOUCH_FAILED": Kind(False, 400, "TOUCH of a message that is not in flight here"),
}


class ProtocolError(Exception):
    """One error frame: a code of the table and a sentence."""

    def __init__(self, code: str, sentence: str = "") -> None:
        super().__init__(f"{code} {sentence}" if sentence else code)
        self.code = code
        self.sentence = sentence

    @property
    def fatal(self) -> bool:
        return is_fatal(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProtocolError) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def is_fatal(text: str) -> bool:
    """Does an error frame with this text end the connection? Unknown codes are taken as fatal."""
    kind = ERRORS.get(text.partition(" ")[0])
    return kind is None or kind.fatal
