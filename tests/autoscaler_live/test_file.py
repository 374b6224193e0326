"""The TOML file of a group: what it takes, and one line for each mistake."""

from pathlib import Path

import pytest

from srtm.autoscaler.autoscale_command import autoscale
from srtm.autoscaler.live.choice import LIVE, check_policy, make_policy, watched
from srtm.autoscaler.live.states import State
from srtm.consumer.announced import AnnouncedTable
from srtm.consumer.file import (
    ConsumerTable,
    ExecutorTable,
    GroupTable,
    KafkaTable,
    read_group_file,
)
from srtm.consumer.pool_file import NsqTable, PoolControllerTable
from srtm.consumer.scaled_file import read_scaled_file
from srtm.consumer.share_file import ShareConsumerTable
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

SMALL = """
[kafka]
bootstrap-servers = "127.0.0.1:9092"
[group]
topic = "events"
id = "workers"
slo = "0.99@500ms"
"""


def test_the_smallest_file_has_defaults_for_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "group.toml"
    file.write_text(SMALL)
    group = read_group_file(file).group
    assert (group.min, group.max, group.policy, group.handover) == (1, 8, "srtm", "direct")
    assert str(group.slo) == "0.99@500ms over 1h"
    assert group.metadata == "consumer.metadata.workers"


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        pytest.param(
            "polcy = 'srtm'", 'group: unknown key "polcy"; did you mean "policy"?', id="unknown-key"
        ),
        pytest.param("slo = 'fast'", "Cannot overwrite a value", id="twice"),
        pytest.param("max = 0", "group.max", id="no-consumer"),
        pytest.param("min = 0", "there is no scaling to zero", id="scale-to-zero"),
        pytest.param("min = 5\nmax = 2", "max 2 is less than min 5", id="min-over-max"),
        pytest.param("mu = -1", "group.mu", id="mu"),
        pytest.param("lease = '10ms'", "lease must be from 500ms", id="lease"),
        pytest.param("interval = 5", "'5' is not a duration|not a duration", id="no-unit"),
        pytest.param(
            "policy = 'contract'", "sizes by a contract: give contract = ", id="no-contract"
        ),
        pytest.param("contract = 'rate=5'", "contract: burst: needed", id="half-a-contract"),
        pytest.param("contract = 'r=5'", "'r=5' is not one of rate, burst", id="no-word"),
        pytest.param("contract = 'rate=5,burst=2'\nweigh = 'bytes'", "counts messages", id="bytes"),
        pytest.param("handover = 'eager'", "group.handover", id="handover"),
        pytest.param("metadata-topic = 'a b'", "no name of a Kafka topic", id="topic"),
        pytest.param("[executor]\nkind = 'nomad'", "executor.kind", id="executor"),
        pytest.param("[consumer]\nwait = '1s'", "nothing would be done", id="no-work"),
        pytest.param("[consumer]\nprocess = 'work.handle'", "module:function", id="no-function"),
        pytest.param("[consumer]\nsink = 'parquet'", "folder belong together", id="no-folder"),
        pytest.param(
            "[kafka.settings]\n'group.id' = 'x'", "it is id of \\[group\\]", id="own-setting"
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(tmp_path: Path, extra: str, says: str) -> None:
    file = tmp_path / "group.toml"
    file.write_text(SMALL + extra + "\n")
    with pytest.raises(UsageError, match=says) as error:
        read_group_file(file)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


POOL = """
[nsq]
topic = "events"
channel = "workers"
lookupd = ["127.0.0.1:4161"]
[group]
slo = "0.99@500ms"
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param("lookupd = [", "#", "give lookupd", id="no-address"),
        pytest.param("127.0.0.1:4161", "http://x:1", r"nsq\.lookupd: .* is a URL", id="url"),
        pytest.param("127.0.0.1:", ":", r"nsq\.lookupd: ':4161' names no host", id="no-host"),
        pytest.param('"workers"', '"w#ephemeral"', "goes with its last consumer", id="ephemeral"),
        pytest.param('"events"', '"a b"', "no name of NSQ's", id="name"),
        pytest.param("[group]", 'nsqd = ["h:1"]\n[group]', "give lookupd", id="both"),
        pytest.param("lookupd = [", "nsqd = [", "0 in nsqd-http", id="no-http"),
        pytest.param("[group]", "[group]\ntopic = 'x'", 'group: unknown key "topic"', id="topic"),
        pytest.param(
            "[group]", "[group]\nhandover = 'direct'", 'unknown key "handover"', id="handover"
        ),
        pytest.param("[group]", "msg-timeout = '1h'\n[group]", "1s to 15m", id="timeout"),
        pytest.param(
            "[group]", "[executor]\nkind = 'kubernetes'\n[group]", "deployment/NAME", id="target"
        ),
        pytest.param(
            "[group]", "[executor]\ntarget = 'deployment/x'\n[group]", "has no effect", id="kind"
        ),
        pytest.param(
            "[group]",
            "[executor]\nkind = 'keda'\ngrpc-address = '0.0.0.0:1'\n[group]",
            "give tls-cert",
            id="open-door",
        ),
        pytest.param(
            "[group]", "[executor]\nkind = 'keda'\ntls-cert = 'x'\n[group]", "tls-key", id="key"
        ),
    ],
)
def test_a_mistake_in_the_file_of_a_pool(tmp_path: Path, old: str, new: str, says: str) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(POOL.replace(old, new, 1))
    with pytest.raises(UsageError, match=says) as error:
        read_scaled_file(file)
    assert "\n" not in str(error.value)


def test_policies_are_those_that_need_no_foresight() -> None:
    assert "srtm" in LIVE
    for name, says in (("peak", "simulated, not run"), ("srmt", "did you mean 'srtm'")):
        with pytest.raises(UsageError, match=says):
            check_policy(name, "group.toml")


@pytest.mark.parametrize("contract", ["", 'contract = "rate=400,burst=50"\n'])
def test_what_is_watched_sizes_by_a_contract_where_there_is_one(
    tmp_path: Path, contract: str
) -> None:
    file = tmp_path / "group.toml"
    file.write_text(SMALL + contract)
    group = read_group_file(file).group
    assert ("contract" in watched((), group, "group.toml")) is bool(contract)
    if not contract:
        with pytest.raises(UsageError, match=r"--policy contract .*give group.toml \[group\]"):
            watched(("contract",), group, "group.toml")


@pytest.mark.parametrize("name", LIVE)
def test_each_policy_can_be_made(tmp_path: Path, name: str) -> None:
    file = tmp_path / "group.toml"
    file.write_text(SMALL + 'contract = "rate=400,burst=50"\n')
    assert make_policy(name, read_group_file(file).group, 200.0).name


def test_a_budget_rolls() -> None:
    budget = RollingBudget(SLO.parse("0.9@500ms over 1m"))
    for second in range(60):
        budget.add(float(second), 10, 1 if second < 30 else 0)
    assert budget.left == pytest.approx(1 - 30 / 60)
    for second in range(60, 95):
        budget.add(float(second), 10, 0)
    assert budget.left == pytest.approx(1.0)


README = Path(__file__).parents[2] / "srtm" / "autoscaler" / "README.md"


def test_the_readme_has_every_key_and_no_other(tmp_path: Path) -> None:
    file, block = tmp_path / "group.toml", ""
    for other in README.read_text().split("```toml\n")[1:]:
        part = other.partition("```")[0]
        file.write_text(part)
        read_scaled_file(file)
        block += part
    known = set()
    tables = (
        KafkaTable,
        GroupTable,
        ConsumerTable,
        ShareConsumerTable,
        ExecutorTable,
        PoolControllerTable,
        NsqTable,
        AnnouncedTable,
    )
    for table in tables:
        fields = table.model_fields.items()
        known |= {field.alias or name.replace("_", "-") for name, field in fields}
    lines = (line.removeprefix("# ") for line in block.splitlines())
    shown = {line.partition(" =")[0] for line in lines if " = " in line}
    assert known == shown | {"settings"}


def test_the_readme_has_every_state_and_command() -> None:
    text = README.read_text()
    for state in State:
        assert f"| {state} |" in text
    for name in ("watch", "run", "explain", "stop"):
        assert f"srtm autoscale {name} group.toml" in text
        assert name in autoscale.commands
