"""Runs the code blocks of a page as a person would paste them: one shell, one folder, in order.

The page has a network of its own (a namespace), so its blocks may use the default ports. Pages that
take a Kafka for granted share one, and its network, one after the other: each has its processes and
its folder. A fence says what a block is:

    sh      pasted into bash; a block whose last line ends with & starts a server, and the next
            block waits until it listens on the ports that the block, or its file, names
    toml    written to the file that its first line names
    python  run as a program of its own
    text    looked at only
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from srtm.kafka.server import missing
from tests.docs.generated import ROOT

_FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.M | re.S)
_READY = """
ready() {  # waits until something listens on each port that is named
  for port in "$@"; do
    for _ in $(seq 600); do
      (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue 2
      sleep 0.05
    done
    echo "nothing listens on port $port" >&2
    exit 1
  done
}
"""
_PROCESSES = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
LANGUAGES = {"sh", "toml", "python", "text"}


@dataclass(frozen=True)
class Block:
    language: str
    text: str

    @property
    def runs(self) -> bool:
        return self.language in ("sh", "python")

    @property
    def starts_servers(self) -> bool:
        return self.language == "sh" and _without_comment(self.text).endswith("&")

    @property
    def file(self) -> str:
        """That a toml block is of."""
        found = re.match(r"# (\S+\.toml)\n", self.text)
        assert found, f"a toml block begins with # NAME.toml:\n{self.text}"
        return found[1]


def blocks(page: str) -> list[Block]:
    return [Block(found[1], found[2]) for found in _FENCE.finditer(page)]


def _without_comment(text: str) -> str:
    return re.sub(r"\s+#.*$", "", text.strip().splitlines()[-1]) if text.strip() else ""


def script(pages: list[list[Block]]) -> str:
    """One bash script for all of them."""
    parts = ["set -euo pipefail", "ip link set lo up"]
    if any(map(needs_kafka, pages)):
        named = r'kafka:([\w.]+)|^topic = "([\w.]+)"'
        every = [block.text for page in pages for block in page]
        topics = {a or b for text in every for a, b in re.findall(named, text, re.M)}
        parts.append(f"python -m tests.support.kafka_given {' '.join(sorted(topics))} &")
        parts.append("until [ -e kafka.ready ]; do sleep 0.1; done")
    for number, page in enumerate(pages):
        folder = f"page{number}"
        parts.append(f"mkdir -p {folder}/.venv/bin && touch {folder}/.venv/bin/activate")
        parts.append(f"cat > {folder}/page.sh <<'SRTM_SCRIPT'\n{page_script(page)}\nSRTM_SCRIPT")
        parts.append(f"(cd {folder} && {' '.join(_PROCESSES)} bash page.sh)")
    return "\n".join(parts)


def page_script(page: list[Block]) -> str:
    """One bash script for all blocks."""
    parts = ["set -euo pipefail", _READY]
    files: dict[str, str] = {}
    for number, block in enumerate(page):
        if block.language == "toml":
            files[block.file] = block.text
            parts.append(_written(block.file, block.text))
        elif block.language == "python":
            parts += [_written(f"block{number}.py", block.text), f"python block{number}.py"]
        elif block.language == "sh":
            parts.append(block.text)
            if block.starts_servers:
                parts.append("ready " + " ".join(_ports(block.text, files)))
    return "\n".join(parts)


def _ports(text: str, files: dict[str, str]) -> list[str]:
    """That the servers of a block listen on."""
    if "srtm distributor" in text:
        return ["4180"]
    if "srtm bridge" in text:
        return ["4190"]
    if "srtm up" in text:
        [name] = re.findall(r"srtm up (\w\S+)", text)
        given = re.findall(r'^(?:tcp|http)-address = ".*:(\d+)"', files[name], re.M)
        unnamed = ["4150", "4151"] if files[name].count("[[broker]]") > len(given) // 2 else []
        return [*given, *unnamed, "4180"]
    return re.findall(r"--(?:tcp|http)-address=\S*?:(\d+)", text)


def needs_kafka(page: list[Block]) -> bool:
    """It takes one for granted, at 9092."""
    return any(":9092" in block.text for block in page)


def _written(name: str, text: str) -> str:
    return f"cat > {name} <<'SRTM_PAGE'\n{text}SRTM_PAGE"


def run(pages: list[list[Block]], folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    """In `folder`. All that a page started ends with it: it is a process namespace too."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [*_namespace(), "bash", "-c", script(pages)],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def _namespace() -> list[str]:
    return [*_PROCESSES, "--net", *(["--map-root-user"] if os.geteuid() else [])]


def cannot_run(page: list[Block]) -> str:
    """Why a page cannot be run here; empty where it can."""
    if needs_kafka(page) and missing():
        return missing()
    command = [*_namespace(), "ip", "link", "set", "lo", "up"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no network namespace: {tried.stderr.strip()}"
