"""`srtm distributor`."""

import asyncio

import click

from distributor.http.server import Server
from distributor.options import DistributorOptions
from srtm.options.logs import log_to_stderr
from srtm.options.model import add_options, read_options


@click.command("distributor", context_settings={"auto_envvar_prefix": "SRTM_DISTRIBUTOR"})
@add_options(DistributorOptions)
@click.pass_context
def distributor(context: click.Context, /, **_: object) -> None:
    """Run the Load Distributor: it places the publishers of topics on brokers.

    Gateways report to it and get their shares of each topic's contract; publishers learn from it
    where to connect. Every change that it has acknowledged survives a crash. Of two distributors on
    one store one leads; the other answers 503 and takes over if the leader is gone.

    \b
      srtm distributor --http-address=127.0.0.1:4180 --store=/var/lib/srtm/distributor.db

    /v1/openapi.json describes the API; /metrics has the metrics. SIGTERM ends the distributor.
    """
    options = read_options(DistributorOptions, context)
    log_to_stderr(options.log_level)
    asyncio.run(Server(options).run())
