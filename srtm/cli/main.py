"""The `srtm` command, and the table of its sub-commands."""

import os
import sys

# pydantic looks for plugins among all that is installed, which takes longer than most commands.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

import click

from srtm import __version__
from srtm.cli.group import LazyGroup
from srtm.text.errors import Exit, SrtmError

COMMANDS = {
    "gateway": (
        "srtm.gateway.gateway_command:gateway",
        "run a gateway in front of a running nsqd",
    ),
    "up": (
        "srtm.deploy.up_command:up",
        "deploy the brokers and topics of a TOML file on this host",
    ),
    "doctor": (
        "srtm.doctor.doctor_command:doctor",
        "check that this host can run brokers: what is missing, and the remedy",
    ),
    "certs": (
        "srtm.certs.certs_command:certs",
        "make certificates for brokers and clients of a testbed; show any",
    ),
    "testbed": (
        "srtm.testbed.testbed_command:testbed",
        "run one deployment over several hosts, or inject failures into it",
    ),
    "topic": (
        "srtm.deploy.topic_commands:topic",
        "set, list and describe the limits of topics; register a topic for placement",
    ),
    "distributor": (
        "distributor.cli.serve:distributor",
        "run the Load Distributor: brokers, topics, publishers, placements",
    ),
    "placement": (
        "distributor.cli.placement:placement",
        "decide which publisher sends to which broker; simulate it",
    ),
    "broker": (
        "distributor.cli.broker:broker",
        "list, drain, measure and scale the brokers that the Load Distributor knows",
    ),
    "adaptor": (
        "distributor.cli.adaptor:adaptor",
        "explain and simulate how r and b move between brokers as traffic moves",
    ),
    "autoscale": (
        "srtm.autoscaler.autoscale_command:autoscale",
        "watch and scale a Kafka group or an NSQ pool; compare autoscalers by simulation",
    ),
    "consume": (
        "srtm.consumer.consume_command:consume",
        "run one consumer of an autoscaled Kafka group or NSQ pool",
    ),
    "journey": (
        "srtm.journey.journey_command:journey",
        "keep one latency SLO from publisher to consumer, and see where the time goes",
    ),
    "audit": (
        "srtm.audit.audit_command:audit",
        "check by admission logs whether the brokers of a topic together kept its contract",
    ),
    "bridge": (
        "srtm.bridge.bridge_command:bridge",
        "carry NSQ topics to Kafka and back, at least once",
    ),
    "correlate": (
        "srtm.correlation.correlate_command:correlate",
        "find which publishers burst together, by Spark, from the gateways' traces",
    ),
    "report": (
        "srtm.report:report",
        "make a page of benchmark results",
    ),
    "stat": (
        "srtm.stat.stat_command:stat",
        "watch topics: contract, tokens, throttling, latency",
    ),
    "load": (
        "srtm.load.load_command:load",
        "publish an open-loop load and measure its latency",
    ),
    "demo": (
        "srtm.demo:demo",
        "show all parts on this machine: one topic is placed in two ways",
    ),
}
"""by name: where it is, and what it is for"""


class _Srtm(LazyGroup):
    """Its help imports no command: what each is for stands in the table."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=_Srtm,
    imported={name: where for name, (where, _) in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="srtm")
def cli() -> None:
    """Publish limits and latency SLOs for an unmodified NSQ."""


def main() -> None:
    """The entry point: one line for a user's mistake, never a traceback."""
    if sys.platform != "linux":
        sys.exit("srtm: runs on Linux only: it needs epoll, timerfd and the kernel's time stamps")
    try:
        code = cli.main(prog_name="srtm", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = Exit.USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)  # of usage errors, where a command was found
        hint = f"; see {context.command_path} --help" if context else ""
        click.echo(f"srtm: {error.format_message().rstrip('.')}{hint}", err=True)
        code = Exit.USAGE
    except click.Abort:
        code = 130
    except SrtmError as error:
        click.echo(f"srtm: {error}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        code = Exit.FAILED
    except KeyboardInterrupt:
        code = 130
    sys.exit(int(code or 0))
