"""One noun has one meaning, and things are called as their field calls them."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_imports import MODULES, parsed

_CLASSES = {"Far", "Limited", "Told"}
_FUNCTIONS = {"obituary", "last_words", "mourn", "pour", "bent", "hear", "plainly"}
"""each is a thing that has a plainer name"""


def defined(module: str, *kinds: type[ast.AST]) -> Iterator[str]:
    for node in ast.walk(parsed(module)):
        if isinstance(node, kinds):
            yield str(getattr(node, "name", ""))


@pytest.mark.parametrize("noun", ["Topic", "Broker", "Plan", "Fitter"])
def test_a_noun_is_one_class(noun: str) -> None:
    classes = Counter(name for module in MODULES for name in defined(module, ast.ClassDef))
    assert classes[noun] == 1


def test_things_have_plain_names() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{module}: {name}"
        for module in MODULES
        for names, kinds in ((_CLASSES, (ast.ClassDef,)), (_FUNCTIONS, functions))
        for name in defined(module, *kinds)
        if name.lstrip("_") in names
    ]
    assert not found


_CLIPPED = re.compile(r"(Of|The same|It|And|But|Or) ")
"""as a docstring begins that leans on the name or on the neighbour above it"""


def described(tree: ast.AST) -> Iterator[str]:
    """Docstrings, and those below constants and fields."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                yield str(each.value.value)


def test_a_docstring_says_what_the_thing_named_is() -> None:
    found = [
        f"{module}: {text.splitlines()[0]}"
        for module in MODULES
        for text in described(parsed(module))
        if _CLIPPED.match(text)
    ]
    assert not found


def test_only_tests_of_the_whole_lie_beside_the_folders() -> None:
    beside = {file.stem for file in Path(__file__).parent.glob("test_*.py")}
    assert beside == {"test_build", "test_imports", "test_names"}
