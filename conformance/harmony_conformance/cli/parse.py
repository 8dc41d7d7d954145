"""`harmony-conformance parse FILE|-`: Harmony text, or a JSON list of token ids, to messages as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from harmony_conformance.cli.command import Command
from harmony_conformance.cli.render import named, one_line, read_document
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import InvalidJsonError, Json, dumps, items, loads
from harmony_ref import Conversation, HarmonyError, ParseError, Role, encode_with_special_tokens, parse, tokens
from harmony_ref import Json as Wire
from harmony_ref.lenient.errors import RecoveredError
from harmony_ref.lenient.result import LenientParse, Remainder
from harmony_ref.lenient.token_text import text_of_tokens


def configure(parser: ArgumentParser) -> None:
    """What to parse, and whose message it begins with."""
    parser.add_argument("file", metavar="FILE|-", help="Harmony text, or a JSON list of token ids; - is standard input")
    parser.add_argument(
        "--role",
        choices=[role.value for role in Role],
        help="the role whose header is already open where the text begins (assistant for a completion)",
    )

    parser.add_argument(
        "--lenient",
        action="store_true",
        help="print all that can be made of it: the finished messages, the unfinished remainder, and each error with its "
        "position. Exit code 1 when there are errors: the text does not conform, although it was read",
    )


def execute(arguments: Namespace) -> int:
    """Print `{"messages": […]}` on one line; with `--lenient` also `remainder` and `errors`."""
    document = read_document(arguments.file)
    role = Role(arguments.role) if arguments.role is not None else None
    if arguments.lenient:
        read = parse(_ids(arguments.file, document), role, lenient=True)
        _print(_lenient_json(read))
        return Exit.DIVERGES if read.errors else Exit.CONFORMS
    ids = [_known(arguments.file, token) for token in _ids(arguments.file, document)]
    try:
        messages = parse(ids, role)
    except ParseError as problem:
        raise UsageError(
            f"{named(arguments.file)} is no Harmony: {one_line(problem)}; --lenient prints what can be made of it"
        ) from None
    except HarmonyError as problem:
        raise UsageError(f"{named(arguments.file)} is no Harmony: {one_line(problem)}") from None
    _print(Conversation(messages=messages).to_dict())
    return Exit.CONFORMS


def _print(value: Wire) -> None:
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _lenient_json(read: LenientParse) -> Wire:
    return {
        **Conversation(messages=read.messages).to_dict(),
        "remainder": None if read.remainder is None else _remainder_json(read.remainder),
        "errors": [_error_json(error, read.tokens) for error in read.errors],
    }


def _remainder_json(remainder: Remainder) -> Wire:
    header = remainder.header
    fields: dict[str, str | None] = {}
    if header is not None:
        fields = {
            "role": header.author.role.value,
            "name": header.author.name,
            "recipient": header.recipient,
            "channel": header.channel,
            "content_type": header.content_type,
        }
    return {
        "state": remainder.state.value,
        "header": {name: value for name, value in fields.items() if value is not None},
        "text": remainder.text,
        "tokens": list(remainder.tokens),
        "position": remainder.start,
    }


def _error_json(error: RecoveredError, given: Sequence[int]) -> Wire:
    # With the whole text, because what belongs to no message is printed nowhere else.
    return {
        "rule": error.rule.value,
        "position": error.position,
        "span": list(error.span),
        "text": text_of_tokens(given[slice(*error.span)]),
        "state": error.state.value,
        "message": str(error),
        "expected": error.expected,
    }


def _ids(file: str, document: str) -> list[int]:
    if not document.lstrip().startswith("["):
        return encode_with_special_tokens(document)
    try:
        value: Json = loads(document)
    except InvalidJsonError as problem:
        raise UsageError(f"{named(file)} begins as a JSON list and is none: {one_line(problem)}") from None
    if not items(value):
        raise UsageError(f"{named(file)}: no tokens, the list is empty")
    return [_token(file, item) for item in items(value)]


def _token(file: str, item: Json) -> int:
    if not isinstance(item, int) or isinstance(item, bool):
        raise UsageError(f"{named(file)} is a JSON list, but not of token ids: {dumps(item)} is none")
    return item


def _known(file: str, token: int) -> int:
    if not tokens.is_known(token):
        raise UsageError(
            f"{named(file)}: {token} is no token of the Harmony vocabulary, ids are 0 to {tokens.LAST_SPECIAL}"
        )
    return token


COMMAND = Command(name="parse", help="Harmony text or token ids to messages as JSON", configure=configure, run=execute)
