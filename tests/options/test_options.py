"""One options class gives flags, file keys, environment and help; a flag wins over all."""

import re
from pathlib import Path
from typing import Literal

import click
import pytest
from click.testing import CliRunner, Result
from pydantic import BaseModel, ConfigDict, Field

from srtm.gateway.gateway_command import gateway
from srtm.gateway.options import GatewayOptions
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO
from srtm.options.model import Objective, add_options, environment, read_options, read_toml
from srtm.text.duration import format_duration
from srtm.text.errors import Exit, UsageError
from srtm.text.fields import Duration, YesNo


class Options(BaseModel):
    """A small program's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tcp_address: str = Field("0.0.0.0:4150", description="where to listen")
    max_topics: int = Field(10, ge=1, description="topics kept")
    drain_timeout: Duration = Field(10.0, description="time to drain")
    http_admin: bool = Field(False, description="let anybody delete")
    lookupd: tuple[str, ...] = Field((), description="a lookupd")
    level: Literal["low", "high"] = Field("low", description="low or high")
    snappy: YesNo = Field("true", description="let clients compress")


def run(*arguments: str, env: dict[str, str] | None = None) -> Options | str:
    """The options of a call, or the error's line."""
    seen: list[Options] = []

    @click.command(context_settings={"auto_envvar_prefix": "SMALL"})
    @add_options(Options)
    @click.pass_context
    def small(context: click.Context, /, **_: object) -> None:
        seen.append(read_options(Options, context))

    result = CliRunner().invoke(small, arguments, env=env)
    if isinstance(result.exception, UsageError):
        assert "\n" not in str(result.exception)
        return str(result.exception)
    if seen:
        return seen[0]
    return result.output


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "small.toml"


class Extras(BaseModel):
    """The kinds of fields that a small program may have besides."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    slo: Objective = Field(SLO(0.9, 1.0), description="what is promised")
    limit: Duration | None = Field(None, description="longest")
    factor: float = Field(2.0, description="on all of it")
    mode: Literal["a", "b"] = Field("a", description="one of two")
    folder: Path | None = Field(
        None, description="where", json_schema_extra=environment("SHARED_FOLDER")
    )


def extras(*arguments: str, env: dict[str, str] | None = None) -> tuple[list[Extras], Result]:
    seen: list[Extras] = []

    @click.command(context_settings={"auto_envvar_prefix": "SMALL"})
    @add_options(Extras)
    @click.pass_context
    def small(context: click.Context, /, **_: object) -> None:
        seen.append(read_options(Extras, context))

    return seen, CliRunner().invoke(small, arguments, env=env)


def test_objectives_optional_durations_paths_and_a_variable_that_programs_share() -> None:
    (options,), _ = extras(
        "--slo=0.99@5ms over 1m", "--limit=1500ms", "--factor=.5", env={"SHARED_FOLDER": "/x"}
    )
    assert options.slo == SLO(0.99, 0.005, 60.0)
    assert (options.limit, options.factor, options.folder) == (1.5, 0.5, Path("/x"))
    (options,), _ = extras()
    assert (options.slo, options.limit, options.folder) == (SLO(0.9, 1.0), None, None)


def test_help_says_what_a_value_looks_like() -> None:
    _, shown = extras("--help")
    text = " ".join(shown.output.split())
    for line in (
        "--slo P@DURATION what is promised [default: 0.9@1s]",
        "--limit DURATION longest",
        "--factor NUMBER on all of it [default: 2]",
        "--mode a|b one of two [default: a]",
        "--folder PATH where [variable: SHARED_FOLDER]",
    ):
        assert line in text


# --- who wins ----------------------------------------------------------------------------------

FIELDS = [
    pytest.param("max_topics", '"--max-topics=1"', "2", "max-topics = 3", (1, 2, 3, 10),
                 id="number"),
    pytest.param("tcp_address", '"--tcp-address=a"', "b", 'tcp-address = "c"',
                 ("a", "b", "c", "0.0.0.0:4150"), id="text"),
    pytest.param("drain_timeout", '"--drain-timeout=1ms"', "2s", 'drain-timeout = "3m"',
                 (0.001, 2.0, 180.0, 10.0), id="duration"),
    pytest.param("lookupd", '"--lookupd=a", "--lookupd=b"', "c d", 'lookupd = ["e"]',
                 (("a", "b"), ("c", "d"), ("e",), ()), id="several"),
    pytest.param("level", '"--level=high"', "high", 'level = "high"',
                 ("high", "high", "high", "low"), id="choice"),
    pytest.param("http_admin", '"--http-admin"', "true", "http-admin = true",
                 (True, True, True, False), id="switch"),
    pytest.param("snappy", '"--snappy=false"', "false", "snappy = false",
                 ("false", "false", "false", "true"), id="on-until-switched-off"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "flags", "variable", "line", "values"), FIELDS)
def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(
    file: Path, name: str, flags: str, variable: str, line: str, values: tuple[object, ...]
) -> None:
    file.write_text(line)
    config = f"--config={file}"
    env = {f"SMALL_{name.upper()}": variable}
    arguments = re.findall('"(.*?)"', flags)
    got = [
        run(*arguments, config, env=env),
        run(config, env=env),
        run(config),
        run(),
    ]
    assert [getattr(options, name) for options in got] == list(values)
    assert getattr(run(*arguments), name) == values[0]
    assert getattr(run(env=env), name) == values[1]


def test_a_switch_in_the_environment_can_say_no(file: Path) -> None:
    file.write_text("http-admin = true")
    options = run(f"--config={file}", env={"SMALL_HTTP_ADMIN": "false"})
    assert isinstance(options, Options)
    assert options.http_admin is False


@pytest.mark.parametrize(
    ("arguments", "snappy"),
    [
        pytest.param(("--snappy", "--level=high"), "true", id="alone"),
        pytest.param(("--snappy", "false", "--level=high"), "false", id="with-a-word-behind-it"),
        pytest.param(("--level=high", "--snappy"), "true", id="last"),
    ],
)
def test_a_flag_of_true_or_false_may_stand_alone_as_nsqds_does(
    file: Path, arguments: tuple[str, ...], snappy: str
) -> None:
    file.write_text("snappy = false")
    options = run(*arguments, f"--config={file}")
    assert isinstance(options, Options)
    assert (options.snappy, options.level) == (snappy, "high")


def test_the_file_can_be_named_by_the_environment(file: Path) -> None:
    file.write_text("max-topics = 3\nhttp_admin = true")
    options = run(env={"SMALL_CONFIG": str(file)})
    assert options == Options(max_topics=3, http_admin=True)


# --- what is wrong, in one line ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("max-topic = 3", ': unknown key "max-topic"; did you mean "max-topics"?',
                     id="unknown-key"),
        pytest.param("[max-topics]\nx = 1", ": max-topics: must be a whole number (got {",
                     id="a-table-for-a-number"),
        pytest.param("max-topics = 0", ": max-topics: must be greater than or equal to 1 "
                     "(got 0)", id="a-number-too-low"),
        pytest.param("max-topics = 1.5", ": max-topics: must be a whole number",
                     id="a-fraction"),
        pytest.param("drain-timeout = 5", ": drain-timeout: 5 is not a duration; write",
                     id="a-duration-without-a-unit"),
        pytest.param("drain-timeout = inf", ": drain-timeout: inf s is no duration", id="endless"),
        pytest.param("drain-timeout = -1.5", ": drain-timeout: -1.5 s is no duration", id="past"),
        pytest.param('level = "loud"', ": level: must be 'low' or 'high' (got 'loud')",
                     id="no-such-choice"),
        pytest.param("a = 1\nb == 2", ": not TOML: Invalid value (at line 2, column 4)",
                     id="toml-with-its-line"),
        pytest.param("max-topics = 1\nmax-topics = 2\n\n",
                     ": not TOML: Cannot overwrite a value (at line 2, column 15)", id="key-twice"),
        pytest.param("a = " + "[" * 20_000, ": not TOML: ", id="20,000-brackets"),
        pytest.param(b"\xff", ": not TOML: not UTF-8 text (at line 1)", id="not-text"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_with_its_name(file: Path, content: str | bytes, message: str) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = run(f"--config={file}")
    assert isinstance(line, str)
    assert line.startswith(f"{file}{message}")


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        pytest.param(("--max-topics=x",), {}, "--max-topics: must be a whole number",
                     id="a-flag"),
        pytest.param((), {"SMALL_MAX_TOPICS": "x"}, "--max-topics: must be a whole number",
                     id="a-variable-by-its-flag"),
        pytest.param(("--drain-timeout=1",), {}, "--drain-timeout: '1' is not a duration",
                     id="a-duration"),
        pytest.param(("--config=/nowhere/x.toml",), {}, "/nowhere/x.toml: No such file or dir",
                     id="no-file"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_told_with_the_flag(
    arguments: tuple[str, ...], env: dict[str, str], message: str
) -> None:
    line = run(*arguments, env=env)
    assert isinstance(line, str)
    assert line.startswith(message)


def test_a_flag_mends_a_wrong_value_of_the_file(file: Path) -> None:
    file.write_text("max-topics = 0")
    options = run(f"--config={file}", "--max-topics=5")
    assert isinstance(options, Options)
    assert options.max_topics == 5


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "is a directory" in str(run(f"--config={tmp_path}"))
    with pytest.raises(UsageError, match="Is a directory"):
        read_toml(tmp_path)


# --- help, and what the gateway's is made of -----------------------------------------------------


def help_of(command: click.Command) -> str:
    result: Result = CliRunner().invoke(command, ["--help"], terminal_width=200)
    assert result.exit_code == Exit.OK
    return result.output


def entry(text: str, flag: str) -> str:
    """What --help says of one flag, as one line."""
    match = re.search(rf"^  {flag}\b.*(?:\n {{4,}}.*)*", text, re.MULTILINE)
    assert match, f"{flag} is not in --help"
    return " ".join(match[0].split())


@pytest.mark.parametrize("name", GatewayOptions.model_fields)
def test_each_option_of_the_gateway_is_in_its_help(name: str) -> None:
    field = GatewayOptions.model_fields[name]
    said = entry(help_of(gateway), "--" + name.replace("_", "-"))
    assert field.description
    assert " ".join(field.description.split()) in said
    default = field.default
    if isinstance(default, float):
        assert f"[default: {format_duration(default)}]" in said
    elif isinstance(default, int) and not isinstance(default, bool):
        assert f"[default: {default}]" in said
    if isinstance(default, tuple):
        assert "(may be given several times)" in said


def test_the_gateways_help_has_no_flag_that_is_no_option() -> None:
    flags = set(re.findall(r"^  (--[a-z-]+)", help_of(gateway), re.MULTILINE))
    known = {"--" + name.replace("_", "-") for name in GatewayOptions.model_fields}
    assert flags | {"--help"} == known | {"--config", "--help"}  # click may write it "-h, --help"


NSQD = {"nsqd_tcp_address": "127.0.0.1:5150", "nsqd_http_address": "127.0.0.1:5151"}


def test_the_gateways_defaults_are_valid() -> None:
    options = GatewayOptions.model_validate(NSQD)
    assert GatewayOptions.model_validate(options.model_dump()) == options


def test_contracts_come_as_flags_and_as_tables_alike() -> None:
    spec = "t,rate=5,burst=2,mode=reject,max-wait=1s,slo=0.99@1ms"
    document = Contract.parse(spec).document()
    for topic in ([spec], [document], (Contract.parse(spec),)):
        options = GatewayOptions.model_validate({**NSQD, "topic": topic})
        assert options.topic == (Contract.parse(spec),)
    for default in ("rate=5,burst=2", {"rate": 5, "burst": 2}):
        options = GatewayOptions.model_validate({**NSQD, "default_limit": default})
        assert options.default_limit == Contract.parse("t,rate=5,burst=2").limit()


def gateway_says(*arguments: str) -> str:
    result = CliRunner().invoke(
        gateway,
        [*(f"--{key.replace('_', '-')}={value}" for key, value in NSQD.items()), *arguments],
    )
    assert isinstance(result.exception, UsageError), result
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        pytest.param("--topic=t,rate=0,burst=1", "--topic t,rate=0,burst=1: rate: must be",
                     id="contract"),
        pytest.param("--default-limit=rate=0,burst=1",
                     "--default-limit rate=0,burst=1: rate: must be greater than 0",
                     id="default-limit"),
        pytest.param("--default-limit=x", "--default-limit x: 'x' is not one of", id="no-limit"),
        pytest.param("--tcp-address=x", "--tcp-address: 'x' is not an address", id="no-port"),
        pytest.param("--tcp-address=x:\u00b2", "--tcp-address: port '\u00b2' of 'x:\u00b2' is not",
                     id="a-digit-that-is-no-number"),
        pytest.param("--tcp-address=x:\u0663", "--tcp-address: port '\u0663' of 'x:\u0663' is not",
                     id="an-Arabic-digit"),
        pytest.param("--tcp-address=x:65536", "--tcp-address: port '65536' of 'x:65536'",
                     id="port-65536"),
        pytest.param("--tcp-address=:4151", "options: --tcp-address and --http-address are both",
                     id="one-port-for-both"),
    ],
)  # fmt: skip
def test_what_the_gateway_refuses(argument: str, message: str) -> None:
    assert gateway_says(argument).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param('topic = [{topic = "a", rate = 1, burst = 1}, {topic = "b", rate = 0, '
                     "burst = 1}]", "topic: 1.rate: must be greater than 0 (got 0)",
                     id="which-contract-it-is"),
        pytest.param('topic = ["t,rate=1,burst=1", {topic = "t", rate = 1, burst = 1}]',
                     "topic: topic t is given twice", id="a-topic-twice"),
        pytest.param("topic = [5]", "topic: 0: must be a table", id="a-number"),
        pytest.param('topic = "t"', "topic: write a list of contracts", id="a-text-for-a-list"),
        pytest.param("default-limit = {rate = 1}", "default-limit: burst: needed",
                     id="half-a-limit"),
    ],
)  # fmt: skip
def test_what_the_gateway_refuses_in_a_file(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    assert gateway_says(f"--config={file}").startswith(f"{file}: {message}")


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        pytest.param("127.0.0.1:4150", "127.0.0.1:4150", id="as-it-is"),
        pytest.param(":4150", "0.0.0.0:4150", id="every-interface-as-nsqd-has-it"),
        pytest.param("[::1]:4150", "[::1]:4150", id="IPv6"),
        pytest.param("host:04150", "host:4150", id="zeros-before"),
        pytest.param("host:0", "host:0", id="any-port"),
    ],
)
def test_addresses(address: str, kept: str) -> None:
    assert GatewayOptions.model_validate({**NSQD, "tcp_address": address}).tcp_address == kept
