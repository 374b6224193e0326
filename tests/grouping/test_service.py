"""Groups of traces at a real distributor: proposed, accepted, placed by, and what is refused."""

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from distributor.cli.placement import placement
from distributor.control import groupings
from srtm.text.errors import UsageError
from tests.support.distributors import DistributorProcess, distributors_in
from tests.support.servers import wait_for

LAST = int(time.time() * 1e9)
SURE = {"lift": 50.0, "q": 1e-9, "coincidences": 40, "share": 0.6}
PUBLISHERS = [f"p{n}" for n in range(8)]
GROUPS = {"g1": PUBLISHERS[::2], "g2": PUBLISHERS[1::2]}
"""Dealt in order of their ids, each meets at one broker."""


def proposal(groups: dict[str, list[str]] = GROUPS, last: int = LAST, **changes: Any) -> Any:
    found = [{"name": name, "publishers": who} | SURE | changes for name, who in groups.items()]
    return {"first": LAST - 10**12, "last": last, "publishers": 10, "groups": found}


def without_keys(running: DistributorProcess) -> None:
    """A topic of which nobody knows who sends together, on two brokers."""
    running.broker("s1", 60.0)
    running.broker("s2", 60.0)
    running.topic()
    rows = [{"id": each, "rate": 10.0} for each in PUBLISHERS]
    running.ok("POST", "/topics/t/publishers", {"publishers": rows})


def said(running: DistributorProcess, words: str) -> str:
    """By `srtm placement`. Raises what it ends with."""
    arguments = [*words.split(), "--distributor-address", running.address]
    return CliRunner().invoke(placement, arguments, catch_exceptions=False).stdout


def spread(plan: Any) -> list[list[int]]:
    """Members by group and broker."""
    at = {each["publisher"]: each["broker"] for each in plan["assignments"]}
    return [
        [sum(at[who] == broker for who in members) for broker in ("s1", "s2")]
        for members in GROUPS.values()
    ]


EVEN = [[2, 2], [2, 2]]


def test_a_topic_is_placed_without_keys_and_better_by_groups(
    distributor: DistributorProcess,
) -> None:
    without_keys(distributor)
    first = distributor.place()
    assert spread(first) == [[4, 0], [0, 4]]
    taken = distributor.ok("PUT", "/topics/t/groups", proposal())
    assert taken == {"topic": "t", "number": 1, "proposed": 2, "accepted": 0, "publishers": 0}
    assert spread(distributor.place(dry_run=True)) == spread(first), "nobody accepted them"
    planned = distributor.place(dry_run=True, groups="inferred")
    assert spread(planned) == EVEN
    assert planned["reasons"][0].endswith("8 publishers in inferred groups (proposal 1, not "
                                          "accepted yet)")  # fmt: skip
    status, refused = distributor.call("POST", "/topics/t/placements", {"groups": "both"})
    assert (status, refused["error"]) == (
        409,
        "topic t: no inferred groups are accepted: srtm placement groups t accept, and ask again",
    )
    distributor.ok("POST", "/topics/t/groups", {"decision": "accept", "number": 1})
    assert spread(distributor.place(groups="user", dry_run=True)) == spread(first)
    placed = distributor.place()
    assert spread(placed) == EVEN
    assert "inferred group g1 (proposal 1)" in said(distributor, "explain t p0")
    assert placed["reasons"][0] == (
        "groups: 8 publishers in inferred groups (proposal 1, accepted); keys of users come first"
    )
    distributor.ok("POST", "/topics/t/groups", {"decision": "forget"})
    assert spread(distributor.place()) == spread(first)


def test_keys_of_users_win_and_the_difference_is_shown(distributor: DistributorProcess) -> None:
    without_keys(distributor)
    keyed = [{"id": each, "key": "roof", "rate": 10.0} for each in ("p0", "p1")]
    distributor.ok("POST", "/topics/t/publishers", {"publishers": keyed})
    groups = GROUPS | {"g3": ["p99", "gone"]}
    distributor.ok("PUT", "/topics/t/groups", proposal(groups))
    found = distributor.ok("GET", "/topics/t/groups")
    assert found["proposed"]["gone"] == 2
    assert [each["registered"] for each in found["proposed"]["groups"]] == [4, 4, 0]
    (key,) = found["disagreement"]["keys"]
    assert (key["key"], key["group"], key["elsewhere"]) == ("roof", None, {"g1": 1, "g2": 1})
    assert [each["group"] for each in found["disagreement"]["groups"]] == ["g1", "g2"]
    distributor.ok("POST", "/topics/t/groups", {"decision": "accept"})
    at = {each["publisher"]: each["broker"] for each in distributor.place()["assignments"]}
    assert at["p0"] != at["p1"], "of one key"
    shown = said(distributor, "groups t")
    assert "proposed: none" in shown
    assert "accepted: proposal 1 of" in shown
    assert "; 2 publishers in them not registered now" in shown
    assert "  key roof: no two of its 2 publishers are in one group, 1 in g1, 1 in g2" in shown
    assert "  group g1: 1 of 4 have key roof, 3 none" in shown


def test_auto_by_commands(distributor: DistributorProcess) -> None:
    without_keys(distributor)
    assert said(distributor, "groups t auto --coincidences=30") == "topic t: 0 groups accepted\n"
    weak = proposal({"g9": ["p0", "p1"]}, coincidences=29)
    sure = proposal({"g1": ["p2", "p4"]})
    both = sure | {"groups": sure["groups"] + weak["groups"]}
    taken = distributor.ok("PUT", "/topics/t/groups", both)
    assert (taken["proposed"], taken["accepted"], taken["publishers"]) == (2, 1, 2)
    shown = said(distributor, "groups t")
    assert "by themselves from lift 3, share 0.3, 30 coincidences and q 0.001 on" in shown
    assert "coincidences 29 are below 30" in shown
    assert said(distributor, "groups t reject --number=1") == (
        "topic t: 1 group accepted, 2 publishers in them; srtm placement apply t places by them\n"
    )
    found = json.loads(said(distributor, "groups t --json"))
    assert found["floor"]["coincidences"] == 30
    assert found["proposed"] is None


# --- hostile ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path_factory.mktemp("attacked")) as start:
        running = start()
        running.wait_leading()
        without_keys(running)
        yield running
        said = running.process.text()
        assert "Traceback" not in said
        assert "ERROR" not in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param("groups t accept", "topic t: nothing is proposed", id="nothing"),
        pytest.param("groups nosuch", "nosuch is not registered", id="no-topic"),
        pytest.param("groups t accept --lift=3", "--lift goes with auto", id="floor"),
        pytest.param("groups t auto --number=3", "--number goes with", id="number"),
        pytest.param("groups t auto --q=nan", "q: must be", id="nan"),
        pytest.param("apply t --groups=inferred", "srtm correlate propose brings some", id="none"),
        pytest.param("plan --offline x.json --groups=user", "FILE has the keys alone", id="file"),
    ],
)
def test_a_mistake_is_one_line(attacked: DistributorProcess, words: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        said(attacked, words)
    assert "\n" not in str(refused.value)


def raw(text: str) -> bytes:
    return json.dumps(proposal()).replace('"lift": 50.0', text, 1).encode()


HUGE = {f"g{n}": [f"{n}-{m}" for m in range(5_001)] for n in range(20)}
ATTACKS = [
    pytest.param("nosuch", proposal(), 404, "not registered", id="no-topic"),
    pytest.param("t\x1b[2J", proposal(), 404, "not registered", id="a-topic-of-controls"),
    pytest.param("t", raw('"lift": NaN'), 400, "lift", id="nan-lift"),
    pytest.param("t", raw('"lift": 1e999'), 400, "lift", id="endless-lift"),
    pytest.param("t", raw('"lift": "50"'), 400, "lift", id="lift-as-text"),
    pytest.param("t", proposal({"g": ["p0", "a1\x1b[2J"]}), 400, "pattern", id="control-id"),
    pytest.param("t", proposal({"g": ["p0", "x" * 300]}), 400, "256 characters", id="endless-id"),
    pytest.param("t", proposal({"g\n": ["p0", "p2"]}), 400, "pattern", id="control-name"),
    pytest.param("t", proposal({"g": ["a", "b"], "h": ["b", "c"]}), 400, "each may", id="in-two"),
    pytest.param("t", proposal(last=LAST + 10**15), 400, "a clock is wrong", id="future"),
    pytest.param("t", proposal(last=2**63), 400, "last", id="overflow"),
    pytest.param("t", proposal(HUGE), 400, "100,000 at most", id="many-publishers"),
    pytest.param(
        "t",
        proposal({f"g{n}": [f"{n}a", f"{n}b"] for n in range(10_001)}),
        400,
        "at most 10000 items",
        id="many-groups",
    ),
    pytest.param("t", b"[" * 200_000, 400, "JSON", id="deep"),
    pytest.param("t", b'{"groups": [' + b"{}," * 300_000 + b"{}]}", 413, "values", id="values"),
    pytest.param("t", b" " * (17 << 20), 413, "longer than", id="huge"),
    pytest.param("t", b"\xff\xfe", 400, "JSON", id="no-text"),
]


@pytest.mark.parametrize(("topic", "body", "status", "why"), ATTACKS)
def test_a_hostile_proposal_is_one_line_and_changes_nothing(
    attacked: DistributorProcess, topic: str, body: Any, status: int, why: str
) -> None:
    before = attacked.ok("GET", "/topics/t/groups")
    found, answer = attacked.call("PUT", f"/topics/{quote(topic, safe='')}/groups", body)
    assert (found, why in answer["error"]) == (status, True), answer
    assert "\n" not in answer["error"]
    assert len(answer["error"]) <= 600
    assert attacked.ok("GET", "/topics/t/groups") == before


def test_all_topics_together_are_bounded(distributor: DistributorProcess) -> None:
    most = groupings.MOST_MEMBERS // 100_000
    for topic in range(most + 1):
        distributor.topic(f"t{topic}")
        status, answer = distributor.call(
            "PUT",
            f"/topics/t{topic}/groups",
            proposal({f"g{n}": [f"{n}-{m}" for m in range(5_000)] for n in range(20)}),
        )
        assert status == (200 if topic < most else 409), answer
    assert "1,000,000" in answer["error"]
    distributor.ok("DELETE", "/topics/t0")
    assert distributor.call("PUT", f"/topics/t{most}/groups", proposal())[0] == 200


def test_without_the_token_nothing_is_proposed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s" * 32)
    token.chmod(0o600)
    with distributors_in(tmp_path) as start:
        running = start(tmp_path / "store.db", f"--token-file={token}")
        running.wait_leading()
        for method, path in (
            ("PUT", "groups"),
            ("POST", "groups"),
            ("GET", "groups"),
            ("PUT", "grouping"),
        ):
            assert running.call(method, f"/topics/t/{path}", {})[0] == 401


# --- kill -9 ----------------------------------------------------------------------------------


def test_what_was_acknowledged_survives_kill_9_at_any_stage(tmp_path: Path) -> None:
    """Killed while proposals and decisions come: what was answered is there after it."""
    with distributors_in(tmp_path) as start:
        running = start()
        running.wait_leading()
        without_keys(running)
        seen: list[tuple[int, int]] = []
        for round_ in range(3):
            last = LAST + 1_000_000 * round_
            answered: list[tuple[int, int]] = []
            stop = threading.Event()

            def work(
                its: DistributorProcess = running,
                answered: list[tuple[int, int]] = answered,
                stop: threading.Event = stop,
                last: int = last,
            ) -> None:
                try:
                    for n in range(10_000):
                        if stop.is_set():
                            return
                        body = proposal({"g1": ["p0", "p2"]}, last=last + n)
                        number = its.ok("PUT", "/topics/t/groups", body)["number"]
                        answered.append((number, 0))
                        its.ok("POST", "/topics/t/groups", {"decision": "accept"})
                        answered.append((number, number))
                except (OSError, HTTPException, ValueError):
                    return

            worker = threading.Thread(target=work)
            worker.start()
            wait_for(lambda done=answered: len(done) >= 7, "some are answered")
            running.process.kill()
            stop.set()
            worker.join(30)
            seen += answered
            running = start()
            running.wait_leading()
            found = running.ok("GET", "/topics/t/groups")
            number = max(number for number, _ in seen)
            counts = max(counts for _, counts in seen)
            newest = found["proposed"]["number"] if found["proposed"] else 0
            assert found["accepted"]["number"] >= counts
            assert max(newest, found["accepted"]["number"]) >= number
