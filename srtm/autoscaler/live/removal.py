"""A thread that removes members that have ended from Kafka's group.

Kafka keeps the place, and the partitions, of a static member for its session timeout. Whoever is
taken out here was fenced, and its lease is over, or it is surely dead; its name is never used
again.
"""

import logging
import threading
from collections.abc import Callable, Collection
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove

from srtm.consumer.assignor import said_name
from srtm.consumer.file import GroupFile
from srtm.kafka.python_client import admin_settings, quiet

log = logging.getLogger("srtm.autoscale")

_LOOK_SECONDS = 0.3
_ASK_MS = 5_000


class Removal:
    """ended: names of members that are no more, as the controller knows them now"""

    def __init__(self, file: GroupFile, ended: Callable[[], Collection[str]]) -> None:
        quiet()
        bounds = {"request_timeout_ms": _ASK_MS, "bootstrap_timeout_ms": _ASK_MS}
        self._settings = {**admin_settings(file.kafka), **bounds}
        self._group = file.group.id
        self._ended = ended
        self._over = threading.Event()
        self._admin: KafkaAdminClient | None = None
        self._fault = ""

    def start(self) -> None:
        threading.Thread(target=self._run, name="removal", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            try:
                if self._ended():
                    self._look()
                self._fault = ""
            except Exception as error:  # of any kind: the dead would keep their places from here on
                if str(error) != self._fault:
                    log.warning("members of group %s cannot be taken out: %s", self._group, error)
                self._fault = str(error)

    def _look(self) -> None:
        if self._admin is None:
            self._admin = KafkaAdminClient(**self._settings)
        found = self._admin.describe_groups([self._group])[self._group]
        ended = self._ended()
        gone = {
            name: MemberToRemove(
                member_id=each["member_id"], group_instance_id=each["group_instance_id"]
            )
            for each in found["members"]
            if (name := _name(each)) in ended
        }
        if not gone:
            return
        self._admin.remove_group_members(self._group, list(gone.values()))
        log.info("taken out of Kafka's group: %s", ", ".join(sorted(gone)))


def _name(member: dict[str, Any]) -> str:
    """The name of a member: what it said when it joined, or its instance id."""
    said = member.get("member_metadata")
    data = said.get("user_data") if isinstance(said, dict) else None
    return said_name(data) or str(member.get("group_instance_id") or "")
