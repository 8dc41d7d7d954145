"""`harmony-conformance render FILE|-`: render a conversation or an API request (JSON) as Harmony text or token ids.

With `--explain PROMPT`, print the rendering style of a prompt of that conversation instead, or its first difference from every style.
"""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.cli.harmony.request_input import AUTO, HARMONY, detect_form, read_conversation
from harmony_conformance.cli.options.harmony import NO_DATE
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import InvalidJsonError, Json, dumps, items, loads
from harmony_conformance.runtime.terminal_text import unescaped
from harmony_conformance.runtime.text_files import encoding_problem
from harmony_ref import (
    Conversation,
    HarmonyError,
    Message,
    Role,
    decode_bytes,
    encode_with_special_tokens,
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
)
from harmony_ref.explanation import Recognised, explain
from harmony_ref.lenient.token_text import text_of_tokens
from harmony_ref.styles import STYLES, History, render_in_style

_RENDERERS: Mapping[str, Callable[[Iterable[Message]], list[int]]] = MappingProxyType(
    {
        "completion": render_conversation_for_completion,
        "training": render_conversation_for_training,
        "conversation": render_conversation,
    }
)
_NEXT_ROLES: Mapping[str, Role | None] = MappingProxyType({"completion": Role.ASSISTANT, "conversation": None})
"""Role of the next turn, for each value of `--for` that every style supports."""


def execute(arguments: Namespace) -> int:
    """Print the rendering without an added newline, or the explanation of a prompt."""
    if arguments.file == arguments.explain == "-":
        raise UsageError("the conversation and the prompt cannot both be standard input")
    name, value = display_name(arguments.file), read_json(arguments.file)
    form = detect_form(value) if arguments.api == AUTO else arguments.api
    if form == HARMONY and arguments.date is not None:
        raise UsageError(f"{name}: invalid --date: expected an API request, got a conversation, which has its own date")
    prompt = None if arguments.explain is None else parse_ids(arguments.explain, read_document(arguments.explain))
    try:
        shown_date = _current_date(arguments.date, prompt)
        messages = read_conversation(value, form, shown_date)
        if prompt is not None:
            return _explain(messages, prompt, arguments)
        ids = _render(messages, form, arguments)
    except HarmonyError as problem:
        raise UsageError(f"{name}: invalid conversation: {one_line(problem)}") from None
    except UsageError as problem:
        raise UsageError(f"{name}: {problem}") from None
    if arguments.tokens:
        print(ids)
    else:
        _write(decode_bytes(ids))
    return Exit.CONFORMS


def _write(prompt: bytes) -> None:
    """Write the prompt: its exact bytes to a file or pipe, its text without control characters to a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(prompt.decode("utf-8", "backslashreplace"))
    else:
        unescaped(sys.stdout).buffer.write(prompt)
    sys.stdout.flush()


def _render(messages: Conversation, form: str, arguments: Namespace) -> list[int]:
    if arguments.style is None and arguments.history is None and (form == HARMONY or arguments.purpose == "training"):
        return _RENDERERS[arguments.purpose](messages)
    style = STYLES[arguments.style or next(iter(STYLES))]
    history = History(arguments.history or (History.AS_0_0_8 if form == HARMONY else History.BEFORE_LAST_FINAL))
    return render_in_style(messages, style, history=history, next_turn_role=_next_role(arguments))


_DATE_LINE = re.compile(r"^Current date: (\d{4}-\d\d-\d\d)$", re.MULTILINE)


def _current_date(named: str | None, prompt: Sequence[int] | None) -> str | None:
    """Return the date of the system message: as named, else of the prompt, else today."""
    if named is not None:
        return named if named != NO_DATE else None
    if prompt is None:
        return datetime.now(UTC).date().isoformat()
    shown = _DATE_LINE.search(text_of_tokens(prompt))
    return shown.group(1) if shown is not None else None


def _explain(messages: Conversation, prompt: Sequence[int], arguments: Namespace) -> int:
    if arguments.tokens or arguments.history is not None:
        raise UsageError("--explain cannot be combined with --tokens or --history")
    styles = STYLES.values() if arguments.style is None else [STYLES[arguments.style]]
    explanation = explain(prompt, messages, styles=styles, next_turn_role=_next_role(arguments))
    print(explanation)
    return Exit.CONFORMS if isinstance(explanation, Recognised) else Exit.DIVERGES


def _next_role(arguments: Namespace) -> Role | None:
    if arguments.purpose not in _NEXT_ROLES:
        raise UsageError(f"--for {arguments.purpose} has no styles: use --for {' or '.join(_NEXT_ROLES)}")
    return _NEXT_ROLES[arguments.purpose]


def parse_ids(file: str, document: str) -> list[int]:
    """Return the token ids of a document: a JSON list of ids, or Harmony text. Markers in text become special tokens.

    Raises:
        UsageError: The JSON list is invalid, or has an item that is not an integer.
    """
    if not document.lstrip().startswith("["):
        return encode_with_special_tokens(document)
    try:
        values = items(loads(document))
    except InvalidJsonError as problem:
        raise UsageError(f"{display_name(file)}: invalid JSON list: {one_line(problem)}") from None
    ids = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(ids) < len(values):
        wrong = next(value for value in values if not isinstance(value, int) or isinstance(value, bool))
        raise UsageError(f"{display_name(file)}: invalid token id: expected an integer, got {dumps(wrong)}")
    return ids


def read_document(file: str) -> str:
    """Return the text of a file, or of standard input for `-`.

    Raises:
        UsageError: The file cannot be read, or is not valid UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as problem:
        raise UsageError(f"{display_name(file)}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise UsageError(f"{display_name(file)}: {encoding_problem(problem)}") from None


def read_json(file: str) -> Json:
    """Return the JSON value of a file, or of standard input for `-`.

    Raises:
        UsageError: The file cannot be read, or is not valid JSON.
    """
    try:
        return loads(read_document(file))
    except InvalidJsonError as problem:
        raise UsageError(f"{display_name(file)}: invalid JSON: {one_line(problem)}") from None


def display_name(file: str) -> str:
    """Return the name of a file for messages."""
    return "standard input" if file == "-" else file


def one_line(problem: Exception) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(problem).split())
