"""The limits quoted in docs/security.md are those of the code."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ROW = re.compile(r"^\| [^|]+ \| ([0-9,]+)(?: (\w+))? \| `([\w.]+)` \|$", re.MULTILINE)
FACTORS = {"": 1, "s": 1, "characters": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def quoted_limits():
    return ROW.findall(PAGE.read_text("utf-8").partition("\n## Limits\n")[2])


def constant(path):
    """The value at a dotted path: a member of a module, or of a class in one."""
    module, names = path, []
    while True:
        module, _, name = module.rpartition(".")
        names.insert(0, name)
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            continue
        for name in names:
            value = getattr(value, name)
        return value


@pytest.mark.parametrize(("number", "unit", "path"), quoted_limits(), ids=str)
def test_a_quoted_limit_equals_its_constant(number, unit, path):
    assert int(number.replace(",", "")) * FACTORS[unit] == constant(path)


def test_every_row_of_the_table_is_compared():
    rows = PAGE.read_text("utf-8").partition("\n## Limits\n")[2].partition("\n## ")[0].count("\n| ")
    assert len(quoted_limits()) == rows - 2
