"""Small JSON files that are either the old or the new one, whatever happens in between."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from srtm.errors import SrtmError


def write_json(path: Path, document: object) -> None:
    """Replace `path`; on disk before it returns. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any | None:
    """None if there is no such file. Raises SrtmError for one that cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SrtmError(f"{path} is no JSON ({error}); mend it or remove it") from None
    except OSError as error:
        raise SrtmError(f"{path}: {error.strerror}") from None
