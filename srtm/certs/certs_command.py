"""`srtm certs`."""

import datetime
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from srtm.cli.group import LazyGroup
from srtm.text.errors import Exit
from srtm.text.terminal import Column, Table, show

if TYPE_CHECKING:  # a tenth of a second to import, for `srtm certs --help` alike
    from srtm.certs.certificate import Shown

_DAYS = 90


@click.group(cls=LazyGroup)
def certs() -> None:
    """Make a certificate authority and certificates for brokers and clients, and show what is in a
    certificate.

    It is meant for testbeds and trials: the authority's key lies unencrypted in its folder, and
    nothing is revoked. In production let your own authority issue the certificates; the gateway
    takes any in PEM, and follows their files when they are renewed.
    """


@certs.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Make an authority in DIR: ca.pem, by which others verify, and its key ca.key (mode 0600).

    The key is of EC P-256 and the certificate ends in ten years. DIR is made, for you alone, if it
    is missing. An authority that is there already is left alone (exit code 2).
    """
    from srtm.certs.authority import ca_file, create

    create(folder, _now())
    click.echo(
        f"{ca_file(folder)}: give it to clients, and to programs as --tls-root-ca-file\n"
        f"next: srtm certs issue {folder} NAME"
    )


@certs.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("name")
@click.option("--dns", multiple=True, metavar="HOST", help="Another host name; more than once.")
@click.option("--ip", multiple=True, metavar="ADDRESS", help="An IP address; more than once.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=_DAYS,
    show_default=True,
    help="How long it is valid.",
)
@click.option("--force", is_flag=True, help="Replace the files of NAME, for a renewal.")
def issue(
    folder: Path, name: str, dns: tuple[str, ...], ip: tuple[str, ...], days: int, force: bool
) -> None:
    """Issue a certificate by the authority of DIR: DIR/NAME.pem, with its key DIR/NAME.key.

    It serves a server and a client alike. A server is verified by the name that a client connects
    to: NAME is one, and --dns and --ip add others. localhost and 127.0.0.1 are in it only if they
    are given. A client is known by NAME.

    With --force the files are replaced at once, and programs that run take the new ones within ten
    seconds. Names that only the old certificate has are told of. Exit code 2: the authority is
    missing, or a file is there already; 1: the files cannot be written.
    """
    from srtm.certs.authority import issue as issue_certificate
    from srtm.certs.certificate import names_in
    from srtm.certs.names import Names

    names = Names.of(name, dns, ip)
    before = names_in(folder / f"{name}.pem") if force else ()
    cert_path, key_path = issue_certificate(folder, name, names, days, _now(), replace=force)
    said = ", ".join([*names.dns, *names.ip])
    gone = [each for each in before if each not in (*names.dns, *names.ip)]
    if gone:
        click.echo(f"warning: only the old one was for {', '.join(gone)}", err=True)
    click.echo(f"{cert_path}: for {said}; {days} days\n{key_path}: its key")


@certs.command("show")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=Path)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: an object for each.")
def show_certificates(files: tuple[Path, ...], as_json: bool) -> None:
    """Show the certificates of each FILE in PEM: whom they are for, who issued them, how long they
    are valid, and the kind of the key.

    Exit code 1: one of them has ended or is not valid yet; 2: a FILE cannot be read.
    """
    from srtm.certs.certificate import read_shown

    now = _now()
    found = [each for file in files for each in read_shown(file, now)]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found]))
    else:
        show(_table(found))
    if not all(each.is_valid for each in found):
        raise click.exceptions.Exit(Exit.FAILED)


def _table(found: "list[Shown]") -> Table:
    table = Table(
        Column("file", text=True),
        Column("subject", text=True),
        Column("names", sentence=True),
        Column("issuer", text=True),
        Column("valid from", text=True),
        Column("until", text=True),
        Column("days left"),
        Column("key", text=True),
        Column("authority", text=True),
    )
    for each in found:
        left = Text(f"{each.days_left:,.1f}", style="" if each.is_valid else "bold red")
        table.add(
            each.file,
            each.subject,
            ", ".join(each.names),
            each.issuer,
            each.valid_from,
            each.valid_until,
            left,
            each.key,
            "yes" if each.authority else "no",
        )
    return table


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
