"""The TOML file of what is scaled: a Kafka group, a Kafka share group, or a pool of NSQ."""

from pathlib import Path

from pydantic import ValidationError

from srtm.consumer.file import GroupFile, read_group_file
from srtm.consumer.pool_file import PoolFile
from srtm.consumer.share_file import ShareFile
from srtm.options.model import read_toml
from srtm.text.errors import one_line

ScaledFile = GroupFile | PoolFile | ShareFile


def read_scaled_file(path: Path) -> ScaledFile:
    """The file, checked. Raises UsageError: one line, which names the key."""
    document = read_toml(path)
    kafka = document.get("kafka")
    is_share = isinstance(kafka, dict) and kafka.get("group-type") == "share"
    if not is_share and "nsq" not in document:
        return read_group_file(path)
    kind = ShareFile if is_share else PoolFile
    try:
        found = kind.model_validate(document)
    except ValidationError as error:
        raise one_line(error, str(path)) from None
    if isinstance(found, PoolFile):
        found.nsq.features(f"{path}: [nsq] ")
    return found
