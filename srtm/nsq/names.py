"""Topic and channel names, as nsqd accepts them (internal/protocol/names.go)."""

import re
from functools import lru_cache

_NAME = re.compile(rb"[.a-zA-Z0-9_-]+(#ephemeral)?")
MAX_NAME_LENGTH = 64
PROBE_TOPIC = b"srtm_probe#ephemeral"
DISK_TRIAL_TOPIC = b"srtm-disk-trial"
OWN_TOPICS = frozenset([PROBE_TOPIC, DISK_TRIAL_TOPIC])
"""of gateways, at their nsqd: no pattern of a user means them"""


@lru_cache(maxsize=4096)
def is_valid_topic_name(name: bytes) -> bool:
    return 1 <= len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


is_valid_channel_name = is_valid_topic_name


def is_ephemeral(name: bytes) -> bool:
    return name.endswith(b"#ephemeral")
