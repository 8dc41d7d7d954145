"""`help`, `completion`, and what `--help` imports."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harmony_conformance.cli import COMMANDS
from harmony_conformance.cli.main import main

DOCS = Path(__file__).parents[3] / "docs"
HEAVY = (
    "httpx",
    "jinja2",
    "jsonschema",
    "numpy",
    "rich",
    "starlette",
    "tiktoken",
    "harmony_conformance.checks",
    "harmony_proxy.cli",
)


def test_help_of_the_program_imports_no_command():
    program = (
        "import sys\nfrom harmony_conformance.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"
    for command in COMMANDS:
        assert f"    {command.name}" in shown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_has_options(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: harmony-conformance {command.name} ")
    assert command.help.split(maxsplit=1)[0] in shown


def test_help_lists_every_page(capsys):
    assert main(["help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert listed == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "README")


def test_help_prints_a_page_as_it_is_without_a_terminal(capsys):
    assert main(["help", "tutorial"]) == 0
    assert capsys.readouterr().out == (DOCS / "tutorial.md").read_text("utf-8")


def test_help_of_a_command_without_a_page_shows_its_options(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["help", "explain"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: harmony-conformance explain ")


def test_unknown_topic_is_refused_in_one_line(capsys):
    assert main(["help", "nothing"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("harmony-conformance help: invalid TOPIC: expected a command or one of accuracy, ")


def complete(shell_words, tmp_path):
    """Words that bash completes, by the function that the script registers."""
    script = tmp_path / "completion.bash"
    printed = subprocess.run(
        [sys.executable, "-m", "harmony_conformance", "completion", "bash"], capture_output=True, text=True, check=True
    )
    script.write_text(printed.stdout, "utf-8")
    quoted = " ".join(f"'{word}'" for word in shell_words)
    program = (
        f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(shell_words) - 1}; "
        '"$(complete -p harmony-conformance | sed "s/.*-F \\([^ ]*\\) .*/\\1/")"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_and_options(tmp_path):
    assert complete(["harmony-conformance", "ra"], tmp_path) == ["rates"]
    assert complete(["harmony-conformance", "run", "--unix"], tmp_path) == ["--unix-socket"]
    assert complete(["harmony-conformance", "proxy", "--upst"], tmp_path) == ["--upstream"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_script_for_zsh_is_valid(tmp_path):
    script = tmp_path / "_harmony-conformance"
    printed = subprocess.run(
        [sys.executable, "-m", "harmony_conformance", "completion", "zsh"], capture_output=True, text=True, check=True
    )
    script.write_text(printed.stdout, "utf-8")
    subprocess.run(["zsh", "-n", str(script)], check=True)
