"""Plug-ins are loaded by name, or refused in one line."""

import re
import sys
from textwrap import dedent

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import main
from harmony_conformance.plugins.loading import InvalidPluginError, load_plugins, restore_plugins, use_plugins
from harmony_conformance.plugins.registry import all_checks, find_check, plugin_arguments, plugin_sources, set_plugins

CHECK = """
from harmony_conformance.plugin_api import MUST, check

@check(MUST, spec="harmony#final", when=())
def something(x):
    "Something is right."
    return ()
"""


@pytest.fixture(autouse=True)
def _no_plugins_left():
    yield
    set_plugins([])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "site").mkdir()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("acme", "harmony_conformance_plugins")):
            del sys.modules[name]


def installed(folder, files, entry_point=""):
    for name, content in files.items():
        path = folder / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    if entry_point:
        about = folder / "site" / "acme-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", "utf-8")
        (about / "entry_points.txt").write_text(f"[harmony_conformance.checks]\n{entry_point}\n", "utf-8")


REFUSED = {
    "missing.py": (None, "a readable file, got No such file or directory"),
    "folder.py": ("folder", "a Python file (.py), got a folder"),
    "./text.txt": ("", "a Python file (.py), got another file"),
    "syntax.py": ("def x(:", "Python that can be imported, got SyntaxError: invalid syntax (syntax.py, line 1)"),
    "raising.py": ("x = 1\n1/0", "Python that can be imported, got ZeroDivisionError: division by zero (line 2)"),
    "lines.py": ("raise ValueError('a\\nb')", "Python that can be imported, got ValueError: a b (line 1)"),
    "ending.py": ("import sys\nsys.exit(3)", "Python that can be imported, got SystemExit: 3 (line 2)"),
    "needing.py": (
        "import no_such_module",
        "Python that can be imported, got ModuleNotFoundError: No module named 'no_such_module' (line 1)",
    ),
    "empty.py": ("x = 1", "functions with the decorator check or comparison, got none"),
    "importing.py": (
        "from harmony_conformance.checks.usage import adds_up",
        "functions with the decorator check or comparison, got none",
    ),
    "usage.py": (CHECK, "a name that no family of checks of this package has, got 'usage'"),
    "Acme.py": (
        CHECK,
        "a name of lower-case letters, digits and _, as it begins the ids of checks, got 'Acme'",
    ),
    "silent.py": (
        CHECK.replace('"Something is right."', ""),
        "a docstring with the requirement of silent.something, got none",
    ),
    "unquoted.py": (
        CHECK.replace("harmony#final", "no clause"),
        "Python that can be imported, got ValueError: invalid spec: expected a clause, or the key of one in CLAUSES, got 'no clause' (line 4)",
    ),
    "unmet.py": (
        CHECK.replace("when=()", "when=(len,)"),
        "conditions in `when` of unmet.something, got a builtin_function_or_method",
    ),
    "copied.py": (
        CHECK.replace('spec="harmony#final"', 'spec=Clause(source="s", quotation="q", id="harmony#final")').replace(
            "MUST, check", "MUST, Clause, check"
        ),
        "a new id for the clause of copied.something, got 'harmony#final', which this package has",
    ),
    "no_such_module": (
        None,
        "an installed module, or an entry point of the group harmony_conformance.checks, got no such name",
    ),
    "text": (
        "",
        "an installed module, or an entry point of the group harmony_conformance.checks, got no such name; the name of a file ends with .py",
    ),
    "a b": (None, "a file (.py), a module, or an entry point, got 'a b'"),
    "": (None, "a file (.py), a module, or an entry point, got ''"),
    "harmony_conformance.checks": (
        None,
        "a name that no family of checks of this package has, got 'harmony_conformance'",
    ),
    "json": (None, "functions with the decorator check or comparison, got none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_plug_in_is_one_line_with_exit_code_2(name, folder, capsys):
    content, expected = REFUSED[name]
    if content == "folder":
        (folder / name).mkdir()
    elif content is not None:
        (folder / name).write_text(content, "utf-8")
    assert main(["run", "reference", "--list", "--plugin", name]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"harmony-conformance run: invalid plug-in {name}: expected {expected}\n"
    assert all_checks() is CHECKS


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "log.jsonl"],
        ["explain", "usage.adds_up"],
        ["checks"],
        ["report", "run"],
        ["reproduce", "run"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_with_the_option_refuses_it(words, folder, capsys):
    assert main([*words, "--plugin", "missing.py"]) == 2
    assert capsys.readouterr().err == (
        f"harmony-conformance {words[0]}: invalid plug-in missing.py: expected a readable file, got No such file or directory\n"
    )


def test_two_plug_ins_need_two_names(folder):
    (folder / "other").mkdir()
    for path in ("acme.py", "other/acme.py"):
        (folder / path).write_text(CHECK, "utf-8")
    assert len(load_plugins(["acme.py", "acme.py"])) == 1
    with pytest.raises(
        InvalidPluginError, match=r"invalid plug-in other/acme.py: expected a name .* which acme.py has"
    ):
        load_plugins(["acme.py", "other/acme.py"])


def test_a_file_is_there_until_the_command_ends(folder):
    (folder / "acme.py").write_text(CHECK, "utf-8")
    with use_plugins(["acme.py"]):
        assert find_check("acme.something").requirement == "Something is right."
        assert plugin_arguments("acme.something") == ("--plugin", "acme.py")
        assert plugin_arguments("usage.adds_up") == ()
        assert [one.id for one in all_checks()[len(CHECKS) :]] == ["acme.something"]
        assert all_checks() is all_checks()
    assert all_checks() is CHECKS
    assert find_check("acme.something") is None


def test_a_file_with_dataclasses_and_a_clause_of_its_own(folder):
    content = """
    from __future__ import annotations
    from dataclasses import dataclass
    from harmony_conformance.plugin_api import SHOULD, Clause, check

    @dataclass
    class Word:
        text: str

    @check(SHOULD, spec=Clause(source="Rules, section 1", quotation="Be brief."), when=())
    def is_brief(x):
        "The answer is brief."
        return ()
    """
    (folder / "acme.py").write_text(dedent(content), "utf-8")
    (plugin,) = load_plugins(["acme.py"])
    (rule,) = plugin.checks
    assert (rule.id, rule.clause.id, rule.clause.quotation) == ("acme.is_brief", "acme.is_brief", "Be brief.")


def test_an_installed_package_and_its_entry_point(folder):
    installed(
        folder, {"acme/__init__.py": "", "acme/rules.py": CHECK, "acme/words.py": "WORDS = ()"}, "tone = acme.rules"
    )
    (by_module,), (by_point,) = load_plugins(["acme.rules"]), load_plugins(["tone"])
    assert [one.id for one in by_module.checks] == [one.id for one in by_point.checks] == ["acme.something"]
    assert by_point.source.to_json() == {
        "name": "tone",
        "module": "acme.rules",
        "prefix": "acme",
        "sha256": by_module.source.sha256,
    }
    (folder / "site" / "acme" / "words.py").write_text("WORDS = ('x',)", "utf-8")
    (changed,) = load_plugins(["tone"])
    assert changed.source.sha256 != by_point.source.sha256  # the hash is that of all files of the package


def test_an_installed_entry_point_is_not_loaded_by_itself(folder, capsys):
    installed(folder, {"acme/__init__.py": "print('executed')\n" + CHECK}, "acme = acme")
    assert main(["checks", "--format", "json"]) == 0
    printed = capsys.readouterr().out
    assert "executed" not in printed
    assert "acme" not in printed
    assert main(["checks", "--format", "json", "--plugin", "acme"]) == 0
    assert '"acme.something"' in capsys.readouterr().out


def test_two_entry_points_of_one_name(folder):
    installed(folder, {"acme/__init__.py": CHECK}, "acme = acme")
    other = folder / "site" / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n", "utf-8")
    (other / "entry_points.txt").write_text("[harmony_conformance.checks]\nacme = other.rules\n", "utf-8")
    with pytest.raises(InvalidPluginError, match=r"expected one entry point of this name, got acme and other.rules"):
        load_plugins(["acme"])


def test_checks_of_another_module_are_not_taken(folder):
    installed(folder, {"other_rules.py": CHECK})
    (folder / "acme.py").write_text("from other_rules import something", "utf-8")
    with pytest.raises(
        InvalidPluginError, match="expected checks that it defines, got something of the module other_rules"
    ):
        load_plugins(["acme.py"])


def test_another_process_loads_what_was_hashed(folder):
    (folder / "acme.py").write_text(CHECK, "utf-8")
    sources = tuple(one.source for one in load_plugins(["acme.py"]))
    (folder / "acme.py").write_text("1/0", "utf-8")  # changed since, or not on that machine
    restore_plugins(sources)
    assert plugin_sources() == sources
    assert find_check("acme.something") is not None
    before = all_checks()
    restore_plugins(sources)
    assert all_checks() is before
    restore_plugins(())
    assert all_checks() is CHECKS


def test_another_process_refuses_other_files_of_a_module(folder):
    installed(folder, {"acme.py": CHECK})
    sources = tuple(one.source for one in load_plugins(["acme"]))
    (folder / "site" / "acme.py").write_text(CHECK + "x = 1\n", "utf-8")
    expected = re.escape(f"expected the files of the parent process (sha256 {sources[0].sha256[:12]}), got others")
    with pytest.raises(InvalidPluginError, match=expected):
        restore_plugins(sources)
