"""How one of our programs calls another."""

import sys


def module(name: str, python: str = sys.executable) -> tuple[str, ...]:
    """The beginning of a command that runs a module. With -P Python looks for no module in the
    folder that the command runs in: it may be anybody's."""
    return python, "-P", "-m", name
