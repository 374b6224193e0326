"""What an operator types about moves."""

import json

import pytest

from tests.support.distributors import DistributorProcess


def test_the_setting_is_proposed_by_default_and_kept(distributor: DistributorProcess) -> None:
    distributor.topic()
    shown = distributor.srtm("placement", "migrations", "t")
    assert shown.returncode == 0
    assert shown.stdout.splitlines() == [
        "topic t: migrate propose",
        "no broker of it is in trouble, and nobody has left one",
    ]
    done = distributor.srtm("topic", "set", "t", "--migrate=off")
    assert (done.returncode, done.stdout) == (0, "topic t: migrate off\n")
    done = distributor.srtm("topic", "set", "t", "--rate=300", "--migrate=auto")
    assert done.returncode == 0, done.stderr
    found = json.loads(distributor.srtm("placement", "migrations", "t", "--json").stdout)
    assert found == {
        "topic": "t",
        "mode": "auto",
        "trouble": {},
        "blocked": [],
        "proposed": None,
        "applied": [],
    }
    assert distributor.ok("GET", "/topics/t")["rate"] == 300


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("placement migrate t", "topic t: nothing is proposed", id="nothing"),
        pytest.param("placement migrate nosuch", "nosuch is not registered", id="no-topic"),
        pytest.param("placement migrations nosuch", "nosuch is not registered", id="none-to-show"),
        pytest.param("topic set nosuch --migrate=auto", "nosuch is not registered", id="to-set"),
        pytest.param("topic set t --migrate=now", "'now' is not one of", id="no-mode"),
    ],
)
def test_a_mistake_is_one_line(distributor: DistributorProcess, words: str, said: str) -> None:
    distributor.topic()
    done = distributor.srtm(*words.split())
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
