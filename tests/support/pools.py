"""An NSQ pool under `srtm autoscale run`."""

from collections import Counter
from typing import Any

from tests.support.autoscaled import Autoscaled
from tests.support.servers import Servers, free_port, http


class Pool(Autoscaled):
    """brokers: HTTP addresses of nsqds or gateways that take messages"""

    def __init__(self, servers: Servers, lookupd: str, brokers: list[str]) -> None:
        folder = servers.folder / "pool"
        folder.mkdir()
        self.lookupd = lookupd
        self.brokers = brokers
        defaults: dict[str, dict[str, Any]] = {
            "nsq": {
                "topic": "events",
                "channel": "workers",
                "lookupd": [lookupd],
                "msg_timeout": "2s",
            },
            "group": {
                "slo": "0.99@500ms",
                "mu": 500,
                "interval": "300ms",
                "policy": "closer1",
                "max": 4,
            },
            "consumer": {
                "process": "work:handle",
                "sink": "callback",
                "callback": "work:keep",
                "batch": 20,
            },
        }
        super().__init__(servers, folder, f"127.0.0.1:{free_port()}", defaults)

    def publish(self, count: int, broker: int = -1) -> None:
        """Ids that nobody has had yet, over all brokers."""
        for number, address in enumerate(self.brokers):
            if broker in (-1, number):
                ids = range(self.sent + number, self.sent + count, len(self.brokers))
                ids = range(self.sent, self.sent + count) if broker >= 0 else ids
                body = "\n".join(map(str, ids)).encode()
                if body:
                    assert http(address, "/mpub?topic=events", body)[0] == 200
        self.sent += count

    def publish_body(self, body: bytes, broker: int = 0) -> None:
        assert http(self.brokers[broker], "/pub?topic=events", body)[0] == 200

    def kept(self) -> list[tuple[float, int, str]]:
        """(when, by which process, id) of each message that a sink got."""
        return sorted((at, pid, id_) for at, pid, *_, id_ in self.lines())

    def ids(self) -> Counter[str]:
        return Counter(id_ for _, _, id_ in self.kept())

    def wait_kept(self, seconds: float = 60) -> None:
        """Until each id that was sent is in a sink."""
        self.wait(lambda: {str(n) for n in range(self.sent)} <= self.ids().keys(), "kept", seconds)

    def wait_consumers(self, count: int, seconds: float = 60) -> None:
        """Until so many are there, and nobody starts or leaves."""

        def there() -> bool:
            found = self.stats()
            quiet = not found.get("starting") and not found.get("leaving")
            return found.get("consumers") == count and quiet

        self.wait(there, f"{count} consumers", seconds)

    def backlog(self) -> int:
        """Messages that nobody has finished, over all brokers."""
        waiting = 0
        for address in self.brokers:
            path = "/stats?format=json&topic=events&channel=workers"
            for topic in http(address, path)[1]["topics"] or []:
                for each in topic["channels"]:
                    waiting += each["depth"] + each["in_flight_count"] + each["deferred_count"]
        return waiting


def pool(servers: Servers, brokers: int = 1, **tables: dict[str, Any]) -> Pool:
    """With a nsqlookupd and so many nsqds of its own."""
    tcp, web, _ = servers.lookupd()
    nsqds = [servers.nsqd(f"--lookupd-tcp-address={tcp}").http for _ in range(brokers)]
    for address in nsqds:
        assert http(address, "/topic/create?topic=events", b"")[0] == 200
    found = Pool(servers, web, nsqds)
    found.write(**tables)
    return found
