"""`harmony-conformance render FILE|-`: a conversation as JSON, in openai-harmony's form, to Harmony text or token ids."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.command import Command, Exit, UsageError
from harmony_conformance.json_value import Json, NotJson, loads
from harmony_ref import (
    Conversation,
    HarmonyError,
    Message,
    decode_bytes,
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
)

_WAYS: Mapping[str, Callable[[Iterable[Message]], list[int]]] = MappingProxyType(
    {
        "completion": render_conversation_for_completion,
        "training": render_conversation_for_training,
        "conversation": render_conversation,
    }
)


def configure(parser: ArgumentParser) -> None:
    """What to render, for what."""
    parser.add_argument(
        "file", metavar="FILE|-", help='{"messages": […]} as openai-harmony writes it; - is standard input'
    )
    parser.add_argument("--for", dest="purpose", choices=list(_WAYS), default="completion", help="default: completion")
    parser.add_argument("--tokens", action="store_true", help="print the token ids as a JSON list")


def execute(arguments: Namespace) -> int:
    """Print the rendering; text as it is, without a line end of our own."""
    value = read_json(arguments.file)
    conversation: Json = {"messages": value} if isinstance(value, list) else value
    try:
        ids = _WAYS[arguments.purpose](Conversation.from_dict(conversation))
    except HarmonyError as problem:
        raise UsageError(f"{named(arguments.file)} is no conversation: {one_line(problem)}") from None
    if arguments.tokens:
        print(ids)
    else:
        sys.stdout.buffer.write(decode_bytes(ids))
        sys.stdout.flush()
    return Exit.CONFORMS


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
    except NotJson as problem:
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
