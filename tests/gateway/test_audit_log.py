"""The gateway's audit log: who changed limits by the admin socket, and topics by --http-admin."""

import json
import os
import resource
from pathlib import Path
from typing import Any

from tests.support.servers import Servers, http


def test_each_change_is_a_line(servers: Servers, tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    gateway = servers.gateway(f"--audit-log={audit}", "--http-admin")
    gateway.set_limit("t", rate=5.0, burst=2.0)
    assert http(gateway.admin, "/topics")[0] == 200
    assert http(gateway.http, "/topic/create?topic=u", b"")[0] == 200
    assert http(gateway.http, "/channel/create?topic=u&channel=c", b"")[0] == 200
    for _ in range(3):
        assert http(gateway.http, "/topic/create?topic=a%20b", b"")[0] == 400
    assert http(gateway.http, "/pub?topic=u", b"x")[0] == 200
    rows: list[dict[str, Any]] = [json.loads(each) for each in audit.read_text().splitlines()]
    told = [(each["name"], each["method"], each["path"], each["status"]) for each in rows]
    assert told == [
        (f"uid {os.getuid()}", "PUT", "/topics/t", 200),
        ("anybody", "POST", "/topic/create", 200),
        ("anybody", "POST", "/channel/create", 200),
        ("anybody", "POST", "/topic/create", 400),
    ]
    assert (rows[0]["asked"]["rate"], rows[0]["asked"]["burst"]) == (5, 2)
    assert rows[0]["address"] == ""
    assert rows[2]["asked"] == {"topic": "u", "channel": "c"}
    assert rows[2]["address"] == "127.0.0.1"


def test_lines_that_are_lost_are_counted(servers: Servers, tmp_path: Path) -> None:
    gateway = servers.gateway(f"--audit-log={tmp_path / 'audit'}")
    gateway.set_limit("t", rate=5.0, burst=2.0)
    assert gateway.metric("srtm_audit_lost_total") == 0
    resource.prlimit(gateway.process.popen.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    gateway.set_limit("t", rate=6.0, burst=2.0)
    assert gateway.metric("srtm_audit_lost_total") == 1


def test_a_log_that_cannot_be_written_ends_the_start(servers: Servers) -> None:
    gateway = servers.gateway("--audit-log=/no/audit", wait=False)
    assert gateway.process.popen.wait(60) == 2
    assert "--audit-log /no/audit: No such file" in gateway.process.text().splitlines()[-1]
