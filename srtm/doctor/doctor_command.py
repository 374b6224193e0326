"""`srtm doctor`."""

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.text import Text

from srtm.deploy.file import Plan, read_plan
from srtm.deployment.layout import DATA_PATH
from srtm.doctor.findings import Finding, Verdict
from srtm.doctor.look import examine
from srtm.text.errors import Exit
from srtm.text.terminal import Column, Table, show

_STYLES = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.FAILED: "bold red"}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--java", is_flag=True, help="Also check Java, which srtm correlate needs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(file: Path | None, java: bool, as_json: bool) -> None:
    """Check that this host can run the deployment of FILE, or, without FILE, a broker.

    The checks are NSQ's programs and versions, the ports and certificates of FILE, the limit of
    open files, the source of arrival times and why no better one works, cgroup2, disk and clock.
    Each finding comes with its remedy; nothing is changed. FILE's deployment may be running: the
    ports that its own programs hold are right. Exit code 3: something that is needed is
    not there, or a certificate has expired.
    """
    plan: Plan | None = read_plan(file) if file else None
    data_path = plan.deployment.data_path if plan else DATA_PATH.absolute()
    found = list(examine(plan, data_path, java=java))
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found]))
    else:
        show(_table(found))
    if any(each.verdict is Verdict.FAILED for each in found):
        raise click.exceptions.Exit(Exit.UNAVAILABLE)


def _table(found: list[Finding]) -> Table:
    table = Table(
        Column("check", text=True),
        Column("", text=True),
        Column("found", sentence=True),
        Column("remedy", sentence=True),
    )
    for each in found:
        verdict = Text(each.verdict, style=_STYLES[each.verdict])
        table.add(each.check, verdict, each.says, each.remedy)
    return table
