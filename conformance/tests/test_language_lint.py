"""The lint of the language finds each kind of problem, and leaves plain text alone."""

import runpy
from pathlib import Path

import pytest

LINT = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "lint_language.py"))
LONG = " ".join(["word"] * 26)


def found(tmp_path, source="", page=""):
    package = tmp_path / "harmony_ref" / "harmony_ref"
    package.mkdir(parents=True)
    (package / "module.py").write_text(source)
    (tmp_path / "README.md").write_text(page)
    return [(one.line, one.rule) for one in LINT["problems"](tmp_path)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Return the value."""\n', []),
        ('"""What a value is."""\n', [(1, "first word")]),
        ('def f():\n    """Whether it holds."""\n', [(2, "first word")]),
        ('@condition\ndef f():\n    """what the client sent"""\n', []),
        ('"""Return a value.\n\nIt is told to the client."""\n', [(3, "stand-in word")]),
        ('"""Return `told`."""\n', []),
        ('X = "nobody listens"\n', [(1, "stand-in word")]),
        ('X = "nobody"\n', []),
        (f'"""{LONG}."""\n', [(1, "26 words")]),
        (f'"""{LONG[:-5]}. {LONG[:-5].capitalize()}."""\n', []),
        ("class Bad(ValueError):\n    pass\n", [(1, "exception name")]),
        ("class BadError(ValueError):\n    pass\n", []),
        ("lines = path.read_text('utf-8').splitlines()\n", [(1, "splitlines of a text")]),
        ("lines = data.decode().splitlines()\n", [(1, "splitlines of a text")]),
        ("lines = path.read_bytes().splitlines()\n", []),
        ("class A:\n    pass\n\n\nclass A:\n    pass\n", [(1, "class name used twice"), (5, "class name used twice")]),
    ],
)
def test_each_rule_of_code(tmp_path, source, expected):
    assert found(tmp_path, source) == expected


def test_pages_are_read_and_their_code_is_not(tmp_path):
    page = f"# Title\n\nIt is told anew.\n\n```\nnobody\n```\n\n{LONG}.\n"
    assert found(tmp_path, page=page) == [(3, "stand-in word"), (3, "stand-in word"), (9, "26 words")]
