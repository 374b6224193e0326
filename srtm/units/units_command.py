"""Units of a folder, for an ssh host without systemd: `python -m srtm.units.units_command` does
what the JSON on its standard input says, and answers with JSON."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

from srtm.text.errors import SrtmError
from srtm.units import Unit, Units, end_all, holders


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    units, name = Units(Path(asked["folder"])), str(asked["name"])
    try:
        if asked["do"] == "start":
            units.start(Unit(name, asked["command"], asked["environment"]))
        if asked["do"] == "stop":
            return {"ran": units.stop(name, float(asked["grace_seconds"]))}
        if asked["do"] == "end":
            file = Path(asked["file"])
            return {"ran": end_all(lambda: holders(file), float(asked["grace_seconds"]))}
        found = units.status(name)
    except SrtmError as error:
        return {"error": str(error)}
    return {"pid": found.pid if found else None, "alive": bool(found and found.alive)}


def main() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the connection may end; what was begun does not
    json.dump(answer(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
