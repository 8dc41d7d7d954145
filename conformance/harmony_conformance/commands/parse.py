"""`harmony-conformance parse FILE|-`: Harmony text, or a JSON list of token ids, to messages as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from harmony_conformance.command import Command, Exit, UsageError
from harmony_conformance.commands.render import named, one_line, read_document
from harmony_conformance.json_value import Json, NotJson, dumps, items, loads
from harmony_ref import Conversation, HarmonyError, Role, encode_with_special_tokens, parse, tokens


def configure(parser: ArgumentParser) -> None:
    """What to parse, and whose message it begins with."""
    parser.add_argument("file", metavar="FILE|-", help="Harmony text, or a JSON list of token ids; - is standard input")
    parser.add_argument(
        "--role",
        choices=[role.value for role in Role],
        help="the role whose header is already open where the text begins (assistant for a completion)",
    )


def execute(arguments: Namespace) -> int:
    """Print `{"messages": […]}` on one line."""
    ids = _ids(arguments.file, read_document(arguments.file))
    role = Role(arguments.role) if arguments.role is not None else None
    try:
        messages = parse(ids, role)
    except HarmonyError as problem:
        raise UsageError(f"{named(arguments.file)} is no Harmony: {one_line(problem)}") from None
    print(json.dumps(Conversation(messages=messages).to_dict(), ensure_ascii=False, separators=(",", ":")))
    return Exit.CONFORMS


def _ids(file: str, document: str) -> list[int]:
    if not document.lstrip().startswith("["):
        return encode_with_special_tokens(document)
    try:
        value: Json = loads(document)
    except NotJson as problem:
        raise UsageError(f"{named(file)} begins as a JSON list and is none: {one_line(problem)}") from None
    if not items(value):
        raise UsageError(f"{named(file)}: no tokens, the list is empty")
    return [_token(file, item) for item in items(value)]


def _token(file: str, item: Json) -> int:
    if not isinstance(item, int) or isinstance(item, bool):
        raise UsageError(f"{named(file)} is a JSON list, but not of token ids: {dumps(item)} is none")
    if not tokens.is_known(item):
        raise UsageError(
            f"{named(file)}: {item} is no token of the Harmony vocabulary, ids are 0 to {tokens.LAST_SPECIAL}"
        )
    return item


COMMAND = Command(name="parse", help="Harmony text or token ids to messages as JSON", configure=configure, run=execute)
