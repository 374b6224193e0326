"""What people write goes on working: `interface.txt` lists it, and changes with the changelog."""

from tests.docs.interface import LISTED, interface


def test_nothing_is_gone_and_nothing_new_is_unlisted() -> None:
    listed, there = set(LISTED.read_text().splitlines()), set(interface())
    assert not listed - there, "gone: say so in CHANGELOG.md, then `make docs`"
    assert not there - listed, "new: say so in CHANGELOG.md, then `make docs`"
