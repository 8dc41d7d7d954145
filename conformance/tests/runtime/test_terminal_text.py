import io
import json
import re
import stat
import sys
from contextlib import redirect_stdout, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.cli.main import main
from harmony_conformance.runtime.private_files import create_private_folder, write_private
from harmony_conformance.runtime.terminal_text import (
    EscapingStream,
    escape_invisible,
    escape_line_commands,
    escaped_output,
    print_commands,
    print_document,
)

HOSTILE = {
    "C0": "\x00\x07\x08\x0b\x0c\r\x1b",
    "DEL and C1": "\x7f\x85\x9b\x9d\x90",
    "bidi": "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c",
    "separators": "\u2028\u2029",
    "zero width": "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u115f\u3164\uffa0",
    "tags": "\U000e0001\U000e0041\U000e007f\U000e0100",
    "surrogates": "\udfff\ud800",
}


@pytest.mark.parametrize("characters", HOSTILE.values(), ids=HOSTILE)
def test_characters_that_steer_a_terminal_or_are_invisible_become_json_escapes(characters):
    escaped = escape_invisible(characters)
    assert escaped.isascii()
    assert escaped.isprintable()
    assert json.loads(f'"{escaped}"') == characters


@given(st.text(st.characters(exclude_categories=())))
def test_an_escaped_json_text_is_equal_and_stays_as_it_is(value):
    document = json.dumps(value, ensure_ascii=False)
    escaped = escape_invisible(document)
    assert json.loads(escaped) == json.loads(json.dumps(value))
    assert escape_invisible(escaped) == escaped


@pytest.mark.parametrize(
    "command", ["##[error]", "##vso[task.setvariable variable=PATH]", "##teamcity[x]", "###VSO[x]"]
)
def test_a_command_for_a_ci_system_is_escaped_and_equal_as_json(command):
    escaped = escape_invisible(f"text {command} more")
    assert command not in escaped
    assert "##[" not in escaped
    assert json.loads(f'"{escaped}"') == f"text {command} more"
    assert escape_invisible(escaped) == escaped


def test_only_the_first_signs_of_a_line_are_a_command_for_github():
    text = "::error::a\n  \t::add-mask::b\nstd::vector ::c\n:d"
    assert escape_line_commands(text) == "\\u003a:error::a\n  \t\\u003a:add-mask::b\nstd::vector ::c\n:d"


def test_visible_text_of_all_languages_stays():
    text = "Grüße, 你好, שלום, สวัสดี, ❤️ 🙂 é"
    assert escape_invisible(text) == text


def test_everything_that_is_printed_is_escaped(capsys):
    with escaped_output():
        print("a\x9b\tb\n\u202e")
        sys.stderr.writelines(["\x1b[2J\n"])
    assert capsys.readouterr() == ("a\\u009b\tb\n\\u202e\n", "\\u001b[2J\n")


def ascii_output():
    """A standard output of bytes, whose encoding has no more than ASCII."""
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


def test_what_the_encoding_of_a_stream_lacks_becomes_a_json_escape():
    stream = ascii_output()
    with redirect_stdout(stream), escaped_output():
        print('"… é 😀"', flush=True)
    assert json.loads(stream.buffer.getvalue()) == "… é 😀"
    assert stream.errors == "strict"


def test_a_document_is_utf_8_in_a_file_of_any_encoding():
    stream = ascii_output()
    with redirect_stdout(stream), escaped_output():
        print("before")
        print_document("… é 😀\u202e\n::error::")
        print("after", flush=True)
    assert stream.buffer.getvalue().decode() == "before\n… é 😀\\u202e\n\\u003a:error::\nafter\n"


@pytest.mark.parametrize("words", [["explain", "M15"], ["serve", "--list-defects"], ["run", "--help"]])
def test_commands_print_on_a_terminal_without_utf_8(words):
    stream = ascii_output()
    with redirect_stdout(stream), suppress(SystemExit):
        assert main(words) == 0
        stream.flush()
    assert "\\u2026" in stream.buffer.getvalue().decode("ascii")


def test_new_files_and_folders_are_private_and_old_ones_keep_their_mode(tmp_path):
    old = tmp_path / "old"
    old.mkdir(mode=0o755)
    (old / "a").write_bytes(b"")
    (old / "a").chmod(0o644)
    create_private_folder(old / "b" / "c")
    for name in ("a", "b/c/d"):
        write_private(old / name, b"x")
    modes = {name: stat.S_IMODE((old / name).stat().st_mode) for name in (".", "a", "b", "b/c", "b/c/d")}
    assert modes == {".": 0o755, "a": 0o644, "b": 0o700, "b/c": 0o700, "b/c/d": 0o600}


@pytest.mark.parametrize(
    "parts", [["::error::x\n"], ["a\n", "  ", "::add-mask::x\n"], ["a\n \t", ":", ":stop-commands::x\n"]]
)
def test_no_line_that_is_printed_is_a_command_of_github(parts):
    """The name of a model is the first word that `run --quiet` prints."""
    file = io.StringIO()
    stream = EscapingStream(file)
    for part in parts:
        assert stream.write(part) == len(part)
    assert not re.search(r"(?m)^\s*::", file.getvalue())
    assert "3a:" in file.getvalue()


def test_what_is_no_command_is_printed_as_it_is():
    file = io.StringIO()
    stream = EscapingStream(file)
    for part in ("a::b\n", "a", "::", "b\n", ":\n:a\n", "::"[:1], "\n"):
        stream.write(part)
    assert file.getvalue() == "a::b\na::b\n:\n:a\n:\n"


def test_commands_of_this_program_are_printed():
    file = io.StringIO()
    print_commands("::error title=a::b\x1b\n::notice::c", EscapingStream(file))
    assert file.getvalue() == "::error title=a::b\\u001b\n::notice::c\n"
