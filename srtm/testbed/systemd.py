"""The systemd unit of a part of a testbed: its text, and how to read what systemctl says. Pure."""

import re
import shlex
from collections.abc import Sequence

from srtm.text.errors import UsageError

STOP_SECONDS = 180
"""more than `srtm up` takes to end all its programs, one kind after the other"""
_PLAIN = re.compile(r"[A-Za-z0-9@%_+=:,./-]+")

_TEXT = """\
# Written by srtm testbed; `srtm testbed down` removes it.
[Unit]
Description=SRTM {deployment}: {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=2
# srtm up ends its programs in order, each within its own time. SIGTERM to all of them at once
# (control-group) would end nsqd before the gateway has drained, and SIGKILL for what is left after
# a crash (mixed) would take nsqd's memory with it: srtm up's children hear of its death themselves.
KillMode=process
TimeoutStopSec={stop}
LimitNOFILE=65536
StandardOutput=append:{log}
StandardError=inherit
UMask=0077

# The gateway's arrival times need eBPF.
CapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN
AmbientCapabilities=CAP_BPF CAP_NET_ADMIN
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={data_path}
ProtectHome={protect_home}
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service bpf

[Install]
WantedBy=multi-user.target
"""


def unit_name(deployment: str, host: str, name: str) -> str:
    return f"srtm-{deployment}-{host}-{name}.service"


def unit_text(deployment: str, name: str, command: Sequence[str], data_path: str, log: str) -> str:
    """Raises UsageError for a path that a unit file cannot hold."""
    words = [*command, data_path, log]
    for each in words:
        if not _PLAIN.fullmatch(each):
            raise UsageError(
                f"{each!r} cannot stand in a systemd unit: choose a data-path of letters, digits "
                "and ./_-"
            )
    at_home = any(each.startswith(("/home/", "/root/")) for each in words)
    return _TEXT.format(
        deployment=deployment,
        name=name,
        command=shlex.join(command).replace("%", "%%"),
        stop=STOP_SECONDS,
        log=log.replace("%", "%%"),
        data_path=data_path.replace("%", "%%"),
        protect_home="no" if at_home else "yes",
    )


def shown(text: str) -> dict[str, str]:
    """What `systemctl show` writes."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
