"""A leader whose host is gone: its packets are dropped, and PostgreSQL hears nothing of it."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest

from distributor.store import StoreLost
from distributor.store.postgres import PostgresStore
from distributor.store.statements import put_epoch
from tests.support.postgres import postgres
from tests.support.servers import wait_for

TABLE = "srtm_test_cut_off"


@contextlib.contextmanager
def cut_off(store: PostgresStore) -> Iterator[None]:
    """Everything of its connection is dropped, both ways."""
    if os.geteuid() or not shutil.which("nft"):
        message = "dropping packets needs root and nft (nftables)"
        pytest.skip(message)
    with socket.socket(fileno=os.dup(store._connection.fileno())) as its:
        port = its.getsockname()[1]
    rules = [
        f"add table inet {TABLE}",
        f"add chain inet {TABLE} in {{ type filter hook input priority 0; }}",
        f"add rule inet {TABLE} in tcp sport {port} drop",
        f"add rule inet {TABLE} in tcp dport {port} drop",
    ]
    subprocess.run(["nft", "; ".join(rules)], check=True, timeout=10)
    try:
        yield
    finally:
        subprocess.run(["nft", f"delete table inet {TABLE}"], check=True, timeout=10)


@pytest.mark.timeout(120)
def test_another_leads_within_seconds_and_the_first_one_writes_no_more() -> None:
    with postgres() as server:
        url = server.tcp_url(server.new())
        first, second = PostgresStore(url), PostgresStore(url)
        assert first.lead()
        assert not second.lead()
        with cut_off(first):
            # Without keepalives of the session this takes two hours.
            wait_for(second.lead, "the other one leads", 30)
        with pytest.raises(StoreLost):
            first.write([put_epoch(7)])
        second.write([put_epoch(8)])
        assert second.snapshot().epoch == 8
        first.close()
        second.close()
