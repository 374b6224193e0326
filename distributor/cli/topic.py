"""`srtm topic register`."""

from pathlib import Path

import click

from distributor.cli.topic_file import read_topic_file
from distributor.cli.upload import upload
from distributor.remote import Remote, print_json, remote_options
from srtm.text.words import counted, rate


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@remote_options
def register(file: Path, remote: Remote, as_json: bool) -> None:
    """Register a topic and its publishers with the Load Distributor.

    \b
    FILE is TOML:
      name = "sensors"
      rate = 11000                   # messages/s over all brokers
      burst = 50                     # messages
      slo = "0.99@1ms"               # and, if wanted, mode, max-wait, batch, batches
      keys = ["room-1", "room-2"]    # optional: the only correlation keys
      publishers = "publishers.csv"  # beside FILE

    Publishers are CSV with the header id,key,rate, or JSON lines (.jsonl) of {"id", "key", "rate"};
    publishers with one key send together, an empty key is none, rate is in messages/s. All is
    checked before anything is sent. Registering again changes what is different; publishers that
    are not in the file stay.
    """
    found = read_topic_file(file)
    upload(remote, found)
    name, done = found.contract.topic, len(found.publishers)
    if as_json:
        print_json({"topic": name, "registered": done})
    else:
        offered = rate(sum(each.rate for each in found.publishers))
        click.echo(f"topic {name}: {counted(done, 'publisher')} with {offered} registered")
