"""The user's functions, named `module:function`; sync or async."""

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srtm.text.errors import UsageError


def load(name: str, path: Path, where: str) -> Callable[..., Any]:
    """`path` is searched first. Raises UsageError; what the module itself raises is its own."""
    module_name, _, function_name = name.partition(":")
    folder = str(path.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise
        raise UsageError(f"{where}: there is no module {module_name} in {folder}") from None
    found = getattr(module, function_name, None)
    if not callable(found):
        raise UsageError(f"{where}: module {module_name} has no function {function_name}")
    return found  # type: ignore[no-any-return]


class Caller:
    """Calls both kinds; one event loop for all calls, so that connections live from one batch to
    the next."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Raises TimeoutError where an async function takes too long."""
        found = function(*arguments)
        if not inspect.isawaitable(found):
            return found
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(asyncio.wait_for(found, self._timeout))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
