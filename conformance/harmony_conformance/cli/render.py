"""`harmony-conformance render FILE|-`: a conversation as JSON, in openai-harmony's form, to Harmony text or token ids.

With `--explain PROMPT` it says instead which rendering style a prompt of that conversation is in, or where it first is in none.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.cli.command import Command
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import InvalidJsonError, Json, items, loads
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
from harmony_ref.styles import STYLES, History, render_in_style

_WAYS: Mapping[str, Callable[[Iterable[Message]], list[int]]] = MappingProxyType(
    {
        "completion": render_conversation_for_completion,
        "training": render_conversation_for_training,
        "conversation": render_conversation,
    }
)
_NEXT: Mapping[str, Role | None] = MappingProxyType({"completion": Role.ASSISTANT, "conversation": None})
"""Who is to speak next, for each way that has a form in every style."""


def configure(parser: ArgumentParser) -> None:
    """What to render, for what."""
    parser.add_argument(
        "file", metavar="FILE|-", help='{"messages": […]} as openai-harmony writes it; - is standard input'
    )
    parser.add_argument("--for", dest="purpose", choices=list(_WAYS), default="completion", help="default: completion")
    parser.add_argument("--tokens", action="store_true", help="print the token ids as a JSON list")
    parser.add_argument("--style", choices=list(STYLES), help="whose form; default: harmony_0_0_8, for --explain all")
    parser.add_argument(
        "--history",
        choices=[history.value for history in History],
        help="which reasoning of earlier turns is left out; default: as_0_0_8",
    )
    parser.add_argument(
        "--explain",
        metavar="PROMPT|-",
        help="say which style this prompt is in, or where it first is in none: a JSON list of token ids, or Harmony text",
    )


def execute(arguments: Namespace) -> int:
    """Print the rendering, text as it is, without a line end of our own; or what a prompt is told to be."""
    value = read_json(arguments.file)
    conversation: Json = {"messages": value} if isinstance(value, list) else value
    try:
        messages = Conversation.from_dict(conversation)
        if arguments.explain is not None:
            return _explain(messages, arguments)
        ids = _render(messages, arguments)
    except HarmonyError as problem:
        raise UsageError(f"{named(arguments.file)} is no conversation: {one_line(problem)}") from None
    if arguments.tokens:
        print(ids)
    else:
        sys.stdout.buffer.write(decode_bytes(ids))
        sys.stdout.flush()
    return Exit.CONFORMS


def _render(messages: Conversation, arguments: Namespace) -> list[int]:
    if arguments.style is None and arguments.history is None:
        return _WAYS[arguments.purpose](messages)
    style = STYLES[arguments.style or next(iter(STYLES))]
    history = History(arguments.history or History.AS_0_0_8)
    return render_in_style(messages, style, history=history, next_turn_role=_next_role(arguments))


def _explain(messages: Conversation, arguments: Namespace) -> int:
    if arguments.tokens or arguments.history is not None:
        raise UsageError("--explain prints no tokens and looks for every history: leave out --tokens and --history")
    if arguments.file == arguments.explain == "-":
        raise UsageError("the conversation and the prompt cannot both be standard input")
    styles = STYLES.values() if arguments.style is None else [STYLES[arguments.style]]
    prompt = _prompt(arguments.explain)
    told = explain(prompt, messages, styles=styles, next_turn_role=_next_role(arguments))
    print(told)
    return Exit.CONFORMS if isinstance(told, Recognised) else Exit.DIVERGES


def _next_role(arguments: Namespace) -> Role | None:
    if arguments.purpose not in _NEXT:
        raise UsageError(f"--for {arguments.purpose} has no styles: use --for {' or '.join(_NEXT)}")
    return _NEXT[arguments.purpose]


def _prompt(file: str) -> list[int]:
    """The ids of a prompt. Of a text every marker is taken for its special token: a text cannot show otherwise."""
    document = read_document(file)
    if not document.lstrip().startswith("["):
        return encode_with_special_tokens(document)
    try:
        value = loads(document)
    except InvalidJsonError as problem:
        raise UsageError(f"{named(file)} begins as a JSON list and is none: {one_line(problem)}") from None
    found = [item for item in items(value) if isinstance(item, int) and not isinstance(item, bool)]
    if len(found) < len(items(value)):
        raise UsageError(f"{named(file)} is a JSON list, but not of token ids")
    return found


def read_document(file: str) -> str:
    """The text of a file, or of standard input where the name is `-`.

    Raises:
        UsageError: there is no such file, or it is no UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as problem:
        raise UsageError(f"{named(file)}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise UsageError(f"{named(file)} is no UTF-8 text (byte {problem.start})") from None


def read_json(file: str) -> Json:
    """The JSON value of a file.

    Raises:
        UsageError: it is none.
    """
    try:
        return loads(read_document(file))
    except InvalidJsonError as problem:
        raise UsageError(f"{named(file)} is no JSON: {one_line(problem)}") from None


def named(file: str) -> str:
    """What a file is called in a message."""
    return "standard input" if file == "-" else file


def one_line(problem: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(problem).split())


COMMAND = Command(
    name="render", help="a conversation as JSON to Harmony text or token ids", configure=configure, run=execute
)
