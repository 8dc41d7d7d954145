"""The setups in `engines/` use names of this project that exist. Their scripts run on opt-in only, so no other test imports them."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

SETUPS = Path(__file__).parents[3] / "engines"
pytestmark = pytest.mark.skipif(not SETUPS.is_dir(), reason="the installed package has no setups")
OWN = ("harmony_ref", "harmony_conformance", "harmony_proxy")
IN_SHELL = re.compile(rf"from ((?:{'|'.join(OWN)})[\w.]*) import (\w+(?:, \w+)*)")
PATH = re.compile(r"\$ROOT/(\w[\w./-]*\.(?:py|sh|json))")


def own_imports(file):
    """Yield module and name of each import of this project, in a file of Python or a shell script."""
    text = file.read_text("utf-8")
    if file.suffix == ".sh":
        for module, names in IN_SHELL.findall(text):
            yield from ((module, name) for name in names.split(", "))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OWN:
            yield from ((node.module, one.name) for one in node.names)


def scripts(*suffixes):
    return [file for file in sorted(SETUPS.rglob("*")) if file.suffix in suffixes]


FILES = [file for file in scripts(".py", ".sh") if any(own_imports(file))]


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(SETUPS)) for file in FILES])
def test_what_a_lane_imports_from_this_project_exists(file):
    missing = [
        f"{module}.{name}"
        for module, name in own_imports(file)
        if not hasattr(import_module(module), name) and not is_module(f"{module}.{name}")
    ]
    assert missing == []


def is_module(name):
    try:
        import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def test_the_files_that_the_shell_scripts_name_exist():
    named = [path for file in scripts(".sh") for path in PATH.findall(file.read_text("utf-8"))]
    assert len(named) > 5
    assert [path for path in named if not (SETUPS.parent / path).is_file() and not path.startswith(".")] == []
