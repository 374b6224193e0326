"""Tables for people, on a terminal or piped."""

from rich.console import Console
from rich.table import Table

_PIPED_WIDTH = 160
"""columns where there is no terminal: wide enough that no address is broken over two lines"""


def show(table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    console.print(table)
