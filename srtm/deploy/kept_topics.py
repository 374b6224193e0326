"""topics.json: the topics that were set or deleted at run time, kept over a restart."""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pydantic import ConfigDict, TypeAdapter, ValidationError

from srtm.deployment.layout import Layout
from srtm.host.atomic import read_json, write_json
from srtm.host.clock import NS, monotonic_ns
from srtm.limits.contract import Contract, Limit
from srtm.text.errors import UnavailableError, one_line

Kept = dict[str, Limit | None]
"""topic -> its limit, or None where the file's topic was deleted at run time"""
_KEPT = TypeAdapter(Kept, config=ConfigDict(defer_build=True))
_LOCK_WAIT_SECONDS = 30.0
"""as long as a change over the brokers may take when one of them hardly answers"""
_POLL_SECONDS = 0.05


class KeptTopics:
    """The file, and the lock under which one command at a time changes topics."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def read(self) -> Kept:
        """Raises UsageError or SrtmError for a file that was tampered with."""
        document = read_json(self._layout.topics)
        try:
            return {} if document is None else _KEPT.validate_python(document)
        except ValidationError as error:
            raise one_line(error, str(self._layout.topics)) from None

    def keep(self, name: str, limit: Limit | None) -> None:
        kept = {**self.read(), name: limit}
        document = {each: value.document() if value else None for each, value in kept.items()}
        write_json(self._layout.topics, document)

    @contextmanager
    def changing(self, wait_seconds: float = _LOCK_WAIT_SECONDS) -> Iterator[None]:
        """Two changes at once could hand out one share twice. Raises UnavailableError."""
        descriptor = os.open(self._layout.topics_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline_ns = monotonic_ns() + int(wait_seconds * NS)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if monotonic_ns() > deadline_ns:
                        raise UnavailableError(
                            f"another change of topics in {self._layout.data_path} has not ended "
                            f"within {wait_seconds:g} s; try again later"
                        ) from None
                    time.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)


def merge(
    planned: Sequence[Contract], kept: Mapping[str, Limit | None]
) -> tuple[list[Contract], list[str]]:
    """The topics to start with, and a line for each where run time and file differ."""
    topics = {contract.topic: contract for contract in planned}
    lines = []
    for name, limit in kept.items():
        in_file = topics.get(name)
        if limit is None:
            if topics.pop(name, None):
                lines.append(
                    f"topic {name} stays deleted, as done at run time; "
                    f"srtm topic set brings it back"
                )
            continue
        contract = Contract.model_validate({"topic": name, **limit.model_dump()})
        if in_file is not None and in_file.document() != contract.document():
            lines.append(
                f"topic {name} keeps {describe(contract)}, as set at run time, "
                f"not the file's {describe(in_file)}"
            )
        topics[name] = contract
    return list(topics.values()), lines


def describe(limit: Limit) -> str:
    """`rate=1100 burst=40 mode=delay`."""
    document = limit.document()
    for key in ("topic", "contract-burst"):
        document.pop(key, None)
    return " ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in document.items()
    )
