"""A topic and its publishers, sent to the distributor in requests of a size that it takes."""

from distributor.api_fields import MAX_PUBLISHERS
from distributor.cli.topic_file import TopicFile
from distributor.remote import Remote
from srtm.text.errors import SrtmError
from srtm.text.words import counted


def upload(remote: Remote, found: TopicFile) -> None:
    """Send the topic and its publishers; to send them again is no fault. Raises as `Remote.call`
    does, with what is registered by then."""
    name, everybody = found.contract.topic, found.publishers
    remote.call("PUT", "topics", name, body=found.topic_document())
    for start in range(0, len(everybody), MAX_PUBLISHERS):
        part = [each.model_dump() for each in everybody[start : start + MAX_PUBLISHERS]]
        try:
            remote.call("POST", "topics", name, "publishers", body={"publishers": part})
        except SrtmError as error:
            left = f"{start:,} of {counted(len(everybody), 'publisher')} are registered"
            raise type(error)(f"{error}; {left}, run the command again") from None
