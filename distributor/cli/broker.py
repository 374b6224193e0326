"""`srtm broker`."""

import click

from distributor.remote import Remote, print_json, remote_options
from srtm.cli.group import LazyGroup
from srtm.text.terminal import Column, Table, show
from srtm.text.words import number, some


@click.group(
    cls=LazyGroup,
    imported={
        "capacity": "distributor.capacity.capacity_command:capacity",
        "scale": "srtm.deploy.scaling.scale_command:scale",
    },
)
def broker() -> None:
    """List, drain, measure and scale the brokers that the Load Distributor knows."""


@broker.command("list")
@remote_options
def list_(remote: Remote, as_json: bool) -> None:
    """List every broker: its capacity, the load placed on it, and whether it is in contact. With
    several addresses, list which distributor leads, too."""
    answer = remote.look("brokers")
    distributors = remote.states()
    for warning in answer["warnings"]:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json({**answer, "distributors": distributors})
        return
    if len(distributors) > 1:
        for address, state in distributors.items():
            click.echo(f"distributor {address}: {state}")
    table = Table(
        Column("broker", text=True),
        Column("state", text=True),
        Column("TCP", 2, text=True),
        Column("capacity/s"),
        Column("allocated/s"),
        Column("epoch", 3),
        Column("topics", 1, sentence=True),
    )
    for each in answer["brokers"]:
        table.add(
            each["name"],
            each["state"],
            each["tcp_address"],
            number(each["capacity"]) if each["capacity"] else "not measured",
            number(each["allocated"]),
            f"{each['applied_epoch']}/{each['epoch']}",
            some(each["topics"]),
        )
    if not answer["brokers"]:
        click.echo("no broker yet; a gateway with --distributor-address registers itself")
        return
    show(table)


@broker.command()
@click.argument("name")
@click.option("--undo", is_flag=True, help="Let it take publishers again.")
@remote_options
def drain(name: str, undo: bool, remote: Remote, as_json: bool) -> None:
    """Give broker NAME no new publishers; the next placement moves its publishers away."""
    answer = remote.call("POST", "brokers", name, "drain", body={"drain": not undo})
    if as_json:
        print_json(answer)
    elif undo:
        click.echo(f"broker {name} takes publishers again")
    else:
        topics = answer["topics"]
        then = f"; place again: {some(topics)}" if topics else ""
        click.echo(f"broker {name} takes no new publishers{then}")


@broker.command()
@click.argument("name")
@remote_options
def forget(name: str, remote: Remote, as_json: bool) -> None:
    """Declare that lost broker NAME never comes back: its shares are free at once.

    Stop its gateway first: a running gateway would still admit a little of each topic.
    """
    remote.call("DELETE", "brokers", name)
    if as_json:
        print_json({"name": name, "forgotten": True})
    else:
        click.echo(f"broker {name} is forgotten")
