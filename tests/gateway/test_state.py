"""What a gateway keeps over its restart: the file, and the tokens that each topic begins with."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from srtm.gateway.backlog import Bounds
from srtm.gateway.backlogs import Backlogs
from srtm.gateway.state import Kept, SavedState
from srtm.gateway.topics import Topics
from srtm.host.clock import monotonic_ns
from srtm.limits.contract import Limit, Mode
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

LIMIT = Limit(
    rate=1 / 3, burst=17.25, mode=Mode.REJECT, max_wait=3601.0, slo=SLO(0.9999999, 0.001234567)
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.4150"


def kept_as(file: Path, tokens: float, clean: bool) -> SavedState:
    SavedState.read(str(file)).write({"t": Kept(LIMIT, tokens), "u": Kept(LIMIT, 1.0)}, clean)
    return SavedState.read(str(file))


def test_without_a_file_nothing_is_kept_and_every_topic_begins_empty(tmp_path: Path) -> None:
    state = SavedState.read("")
    state.write({"t": Kept(LIMIT, 5.0)}, clean=True)
    assert list(tmp_path.iterdir()) == []
    assert state.first_tokens("t") == 0.0


def test_with_a_file_that_is_not_there_yet_every_topic_is_new_and_begins_full(file: Path) -> None:
    state = SavedState.read(str(file))
    assert state.topics == {}
    assert state.first_tokens("t") is None


@pytest.mark.parametrize(
    ("tokens", "clean", "first"),
    [
        pytest.param(12.5, True, 12.5, id="a-clean-stop-keeps-the-level"),
        pytest.param(0.0, True, 0.0, id="and-an-empty-bucket"),
        pytest.param(-40.5, True, -40.5, id="and-a-debt"),
        pytest.param(12.5, False, 0.0, id="after-a-crash-nobody-knows"),
        pytest.param(-40.5, False, -40.5, id="but-that-a-debt-was-owed"),
    ],
)
def test_a_known_topic_begins_with_what_was_left(
    file: Path, tokens: float, clean: bool, first: float
) -> None:
    state = kept_as(file, tokens, clean)
    assert state.first_tokens("t") == first
    begins = None if clean else 0.0
    assert state.first_tokens("new") == begins, "it may have come after the last write"


def test_the_limit_comes_back_to_the_last_digit(file: Path) -> None:
    assert kept_as(file, 1.0, True).topics["t"].limit == LIMIT


def test_writing_replaces_all_that_was_there(file: Path) -> None:
    state = kept_as(file, 1.0, True)
    state.write({"v": Kept(LIMIT, 2.0)}, clean=False)
    assert list(SavedState.read(str(file)).topics) == ["v"]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_write_that_fails_leaves_the_old_file(file: Path) -> None:
    state = kept_as(file, 12.5, True)
    with pytest.raises(TypeError):
        state.write({"t": Kept(LIMIT, object())}, clean=True)  # type: ignore[arg-type]
    assert SavedState.read(str(file)).first_tokens("t") == 12.5
    state.write({"t": Kept(LIMIT, 3.0)}, clean=True)
    assert SavedState.read(str(file)).first_tokens("t") == 3.0


def test_gateways_of_one_folder_do_not_write_into_each_others_file(file: Path) -> None:
    """state.4150 and state.4151: a suffix of its own for the half-written one, not in its place."""
    other = file.with_name("state.4151")
    file.with_name("state.partial").write_text("mine")
    kept_as(file, 1.0, True)
    kept_as(other, 2.0, True)
    assert file.with_name("state.partial").read_text() == "mine"
    assert SavedState.read(str(file)).first_tokens("t") == 1.0
    assert SavedState.read(str(other)).first_tokens("t") == 2.0


WHOLE = {"clean": True, "topics": {"t": {"limit": {"rate": 5, "burst": 2}, "tokens": 1.5}}}


def changed(**values: object) -> str:
    topic = {"limit": {"rate": 5, "burst": 2}, "tokens": 1.5}
    return json.dumps({"clean": True, "topics": {"t": {**topic, **values}}})


def test_the_file_is_as_documented(file: Path) -> None:
    file.write_text(json.dumps(WHOLE))
    state = SavedState.read(str(file))
    assert state.topics == {"t": Kept(Limit(rate=5, burst=2), 1.5)}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut-short"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="a-list"),
        pytest.param("{}", id="no-keys"),
        pytest.param('{"clean": true}', id="no-topics"),
        pytest.param('{"clean": true, "topics": []}', id="topics-as-a-list"),
        pytest.param('{"clean": true, "topics": {"t": 5}}', id="a-number-for-a-topic"),
        pytest.param('{"clean": true, "topics": {"t": {}}}', id="an-empty-topic"),
        pytest.param(changed(limit=5), id="a-number-for-a-limit"),
        pytest.param(changed(limit={"rate": 5}), id="no-burst"),
        pytest.param(changed(limit={"rate": 0, "burst": 2}), id="a-limit-of-nothing"),
        pytest.param(changed(limit={"rate": 5, "burst": 2, "x": 1}), id="an-unknown-key"),
        pytest.param(changed(tokens="many"), id="tokens-in-letters"),
        pytest.param(changed(tokens=None), id="no-tokens"),
        pytest.param(changed(tokens=float("nan")), id="tokens-nan"),
        pytest.param(changed(tokens=float("inf")), id="tokens-infinite"),
        pytest.param(json.dumps(WHOLE).replace('"t"', '"a b"'), id="a-bad-topic-name"),
        pytest.param("[" * 100_000, id="100,000-brackets"),
        pytest.param(b"\xff\xfe", id="not-text"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(
    file: Path, content: str | bytes
) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    file.write_bytes(raw)
    with pytest.raises(UsageError) as raised:
        SavedState.read(str(file))
    assert str(raised.value).startswith(f"--state-file {file}: ")
    assert "\n" not in str(raised.value)
    assert file.read_bytes() == raw


def test_a_folder_for_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        SavedState.read(str(tmp_path))


def topics_by(state: SavedState, max_topics: int = 10) -> Topics:
    """Of a gateway that has just started."""
    bounds, backlogs = Bounds(10, 1 << 20, 1 << 20), Backlogs(1 << 30, max_topics)
    topics = Topics(Mock(), Mock(is_open=True), bounds, state, None, max_topics, backlogs, True)
    topics.begin((), [])
    return topics


def owing(file: Path) -> SavedState:
    """A topic without a contract of its own owed 40 tokens when a share of it was taken back."""
    SavedState.read(str(file)).write({"t": Kept(None, -40.0, False)}, clean=True)
    return SavedState.read(str(file))


@pytest.mark.parametrize("clean", [True, False])
def test_a_debt_that_nobody_has_asked_about_stays_in_the_file(file: Path, clean: bool) -> None:
    topics_by(owing(file)).state_file.write(clean)
    assert SavedState.read(str(file)).first_tokens("t") == -40.0


def test_who_owes_makes_no_room_for_others(file: Path) -> None:
    topics = topics_by(owing(file), max_topics=1)
    owes = topics.find(b"t")
    assert owes is not None
    assert owes.debt == -40.0
    assert topics.find(b"u") is None
    owes.debt = 0.0
    assert topics.find(b"u") is not None
    topics.state_file.write(clean=True)
    assert SavedState.read(str(file)).first_tokens("t") is None, "it owes nothing any more"


def test_a_contract_that_comes_later_begins_with_the_debt(file: Path) -> None:
    topics = topics_by(owing(file))
    topics.set_limit("t", Limit(rate=0.001, burst=10))
    bucket = topics.by_name[b"t"].bucket
    assert bucket is not None
    assert bucket.level(monotonic_ns()) == pytest.approx(-40.0, abs=0.1)
    topics.state_file.close()
