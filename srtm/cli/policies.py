"""How commands list the policies that they know."""

import json
from collections.abc import Mapping

import click


def list_policies(known: Mapping[str, str], as_json: bool) -> None:
    """Print each name with its description: aligned for people, or as one JSON list."""
    if as_json:
        rows = [{"policy": name, "description": text} for name, text in known.items()]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(map(len, known))
    for name, text in known.items():
        click.echo(f"{name:<{width}}  {text}")
