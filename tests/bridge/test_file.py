"""The file: each mistake is one line that names it and its remedy."""

import subprocess
import sys
from pathlib import Path

import pytest

from srtm.bridge.file import read_bridge_file
from srtm.bridge.names import overlap
from srtm.bridge.pointer import NoKey, pointer
from srtm.text.errors import UsageError

HEAD = '[kafka]\nbootstrap-servers = "127.0.0.1:9092"\n'
OUT = 'from = "nsq:a/bridge"\nto = "kafka:b"\nnsqd = ["127.0.0.1:4150"]\n'
IN = 'from = "kafka:b"\nto = "nsq:c"\ngroup = "g"\nnsqd = ["127.0.0.1:4150"]\n'


def routes(*tables: str) -> str:
    return HEAD + "".join(f"[[route]]\n{table}\n" for table in tables)


def refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "bridge.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_bridge_file(file)
    line = str(caught.value)
    assert "\n" not in line
    return line.removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(HEAD, "there is no [[route]]", id="no-route"),
        pytest.param(
            routes(OUT + 'topik = "red"'),
            'route nsq:a/bridge: unknown key "topik"; known are auth-secret-file, batch, ',
            id="key",
        ),
        pytest.param(
            routes(OUT + 'dead_leter = "file:/x"'),
            'route nsq:a/bridge: unknown key "dead_leter"; did you mean "dead-letter"?',
            id="slip",
        ),
        pytest.param("[kafka]\n" + routes(OUT).split("\n", 2)[2], "bootstrap-servers", id="kafka"),
        pytest.param(
            HEAD + '[kafka.settings]\n"acks" = 1\n' + routes(OUT).removeprefix(HEAD),
            "acks cannot be set: nothing less than all",
            id="a-setting-of-ours",
        ),
        pytest.param(
            routes(OUT.replace("nsq:a/bridge", "nsq:a")), "write nsq:TOPIC/CHANNEL", id="channel"
        ),
        pytest.param(routes(OUT.replace("kafka:b", "nsq:b")), "one end is NSQ's", id="one-system"),
        pytest.param(routes(OUT.replace("kafka:b", "b")), "is no end of a route", id="no-system"),
        pytest.param(routes(OUT + 'key = "device"'), "write /name", id="pointer"),
        pytest.param(routes(OUT + 'group = "g"'), "group is for routes from Kafka", id="not-its"),
        pytest.param(routes(IN.replace('group = "g"\n', "")), "group is missing", id="group"),
        pytest.param(routes(IN + 'key = "/a"'), "key is for routes from NSQ", id="not-its-own"),
        pytest.param(routes(OUT.replace("nsqd", "lookupd") + 'nsqd = ["h:1"]'), "once", id="both"),
        pytest.param(routes(OUT.replace("127.0.0.1:4150", "host")), "HOST:PORT", id="address"),
        pytest.param(routes(OUT + 'slo = "99@1ms"'), "SLO percentile", id="slo"),
        pytest.param(
            routes(OUT, OUT.replace("kafka:b", "kafka:d") + 'name = "x"'),
            "routes nsq:a/bridge and x fight over channel bridge of topic a: ",
            id="channel-fight",
        ),
        pytest.param(
            routes(IN, IN.replace("nsq:c", "nsq:d") + 'name = "x"'),
            "fight over group g of topic b: ",
            id="group-fight",
        ),
        pytest.param(
            routes(IN, IN.replace('"g"', '"h"').replace("nsq:c", "nsq:d")),
            "two routes are called kafka:b; give one",
            id="names",
        ),
        pytest.param(routes(OUT, OUT), "fight over channel bridge of topic a", id="twins"),
        pytest.param(routes(OUT).replace("[[route]]", "[route]"), "two brackets", id="brackets"),
        pytest.param(
            routes(OUT.replace('["127.0.0.1:4150"]', '"h:1"')),
            'nsqd: write a list: ["h:1"]',
            id="an-address-without-brackets",
        ),
        pytest.param(
            HEAD + '[kafka.settings]\nsecurity.protocol = "SSL"\n',
            'kafka.settings: write "security.protocol" in quotes',
            id="a-setting-without-quotes",
        ),
        pytest.param(routes(OUT.replace('"kafka:b"', "[]")), "to: write one text", id="no-text"),
        pytest.param(
            routes(OUT + 'dead-letter = "/x"'), "dead-letter: '/x' is no place", id="bare-path"
        ),
        pytest.param(
            routes(OUT, IN.replace("nsq:c", "nsq:a")), "go in a circle", id="a-circle-of-two"
        ),
        pytest.param(
            routes(
                OUT,
                IN,
                'from = "nsq:c/x"\nto = "kafka:d"\nnsqd = ["h:1"]',
                'from = "kafka:d"\ngroup = "g"\nto = "nsq:a"\nnsqd = ["h:1"]',
            ),
            "go in a circle",
            id="a-circle-of-four",
        ),
        pytest.param(
            routes(IN.replace("nsq:c", "nsq:a") + 'dead-letter = "kafka:b"'),
            "its dead letters would go where it works",
            id="dead-letter-to-its-source",
        ),
        pytest.param(
            routes(OUT.replace("kafka:b", "kafka:x.y"), IN.replace("kafka:b", "kafka:x_y")),
            "Kafka refuses topic x.y beside x_y",
            id="names-that-kafka-cannot-tell-apart",
        ),
        pytest.param(
            routes(OUT.replace("kafka:b", "kafka:b#ephemeral")), "Kafka takes 1 to 249", id="hash"
        ),
        pytest.param(routes(OUT.replace("kafka:b", "kafka:..")), "called . or ..", id="dots"),
        pytest.param(routes(OUT.replace("nsq:a", "nsq:" + "a" * 65)), "NSQ takes 1 to", id="long"),
        pytest.param(
            routes(OUT.replace("nsq:a/", "nsq:a#ephemeral/").replace("kafka:b", "kafka:{topic}")),
            "Kafka takes 1 to 249",
            id="a-template-that-makes-a-bad-name",
        ),
        pytest.param(
            routes(OUT.replace("nsq:a/", "nsq:a.*/")),
            "route nsq:a.*/bridge: from: a pattern needs lookupd",
            id="pattern",
        ),
        pytest.param(
            routes(
                IN.replace("kafka:b", "kafka:*")
                .replace("nsq:c", "nsq:{topic}")
                .replace('nsqd = ["127.0.0.1:4150"]', 'distributor = "127.0.0.1:4180"')
            ),
            "the brokers of one topic; name it",
            id="a-distributor-for-many-topics",
        ),
        pytest.param(
            routes(OUT + 'dead-letter = "file:dead"'), "write the whole path", id="half-a-path"
        ),
        pytest.param(
            routes(OUT + 'dead-letter = "file:/{topic}"'), "a file takes those of all", id="files"
        ),
        pytest.param(
            routes(OUT + 'dead-letter = "nsq:dead"'), "kafka:TOPIC or file:/PATH", id="nsq-dead"
        ),
        pytest.param(routes(OUT.replace("kafka:b", "file:/b")), "is no route", id="to-a-file"),
        pytest.param(
            routes(OUT).replace("[kafka]", '[kafka]\ncolour = "red"'),
            'kafka: unknown key "colour"',
            id="kafka-key",
        ),
        pytest.param(
            "[bridge]\nport = 1\n" + routes(OUT), 'bridge: unknown key "port"', id="bridge-key"
        ),
        pytest.param(
            "rout = 1\n" + routes(OUT), 'unknown key "rout"; did you mean "route"?', id="top-key"
        ),
        pytest.param("\n[kafka\n", "not TOML: Expected ']'", id="no-toml"),
        pytest.param(HEAD + "\nx y", "(at line 4, column 3)", id="no-toml-at-a-line"),
        pytest.param(HEAD + 'x = """', "(at line 3, its end)", id="no-toml-at-its-end"),
        pytest.param(
            routes(OUT + 'dead-letter = "file:/a\\u0001b"'), "can be printed", id="no-path"
        ),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    assert says in refusal(tmp_path, text)


def test_a_circle_is_allowed_where_it_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(routes(OUT, IN.replace("nsq:c", "nsq:a") + "loop = true"))
    assert len(read_bridge_file(file).routes) == 2


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a.*", "a.b", True),
        ("a.*", "b.*", False),
        ("*.x", "a.*", True),
        ("*.x", "a.y", False),
        ("*.x", "*.y", False),
        ("*", "anything", True),
    ],
)
def test_patterns_meet(one: str, other: str, meet: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is meet


@pytest.mark.parametrize(
    ("at", "body", "key"),
    [
        ("/a", b'{"a": "x"}', b"x"),
        ("/a/b", b'{"a": {"b": 7}}', b"7"),
        ("/a/1", b'{"a": [1, true]}', b"true"),
        ("/a~1b/~0", b'{"a/b": {"~": "y"}}', b"y"),
        ("/a", b'{"a": 7.50}', b"7.50"),
        ("/a", b'{"a": -1E+2}', b"-1E+2"),
        ("/a", b'{"a": 1e400}', b"1e400"),
        ("/a", b'{"a": ' + b"9" * 5_000 + b"}", b"9" * 5_000),
        ("/a", b'{"a": "x", "b": ' + b"9" * 5_000 + b"}", b"x"),
    ],
)
def test_a_key_is_found(at: str, body: bytes, key: bytes) -> None:
    assert pointer(at)(body) == key


@pytest.mark.parametrize(
    ("at", "body", "says"),
    [
        ("/a", b"no json", "is no JSON"),
        ("/a", b"[" * 100_000, "is no JSON"),
        ("/a", b'{"a": NaN}', "is no JSON"),
        ("/a", b'{"a": 1} {"a": 2}', "is no JSON"),
        ("/a", b"{}", "has no /a"),
        ("/a", b"7", "has no /a"),
        ("/a/2", b'{"a": [1]}', "has no /a/2"),
        ("/a", b'{"a": {}}', "neither a text nor a number"),
        ("/a", b'{"a": null}', "neither a text nor a number"),
    ],
)
def test_a_key_is_missing(at: str, body: bytes, says: str) -> None:
    with pytest.raises(NoKey, match=says):
        pointer(at)(body)


@pytest.mark.parametrize("bad", ["a", "", "/a~2", "/~"])
def test_a_bad_pointer(bad: str) -> None:
    with pytest.raises(ValueError, match="is no JSON pointer"):
        pointer(bad)


def test_the_core_and_the_file_import_no_kafka() -> None:
    programs = "srtm.cli.main, srtm.bridge.bridge_command"
    code = f"import sys, {programs}; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
