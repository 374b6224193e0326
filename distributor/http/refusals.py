"""How a request that cannot be answered is refused: a status, and one line of JSON."""

import json
import logging
from http import HTTPStatus

from distributor.errors import status_of

log = logging.getLogger("srtm.distributor")


def refused(error: Exception, what: str) -> tuple[HTTPStatus, str]:
    """The status of a refusal, and what it says. A fault of ours is logged; what: names the
    request then"""
    status = status_of(error)
    if status != HTTPStatus.INTERNAL_SERVER_ERROR:
        return status, str(error)
    log.error("%s", what, exc_info=error)
    return status, "a fault of the distributor; its log has more"


def refusal(words: str, stands_by: bool, line: str = "error") -> bytes:
    """The body of a refusal. stands_by: another distributor leads; line: the key of the words"""
    return json.dumps({line: words} | ({"leading": False} if stands_by else {})).encode()
