"""`harmony-conformance parse FILE|-`: parse Harmony text, or a JSON list of token ids, to messages as JSON."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence

from harmony_conformance.cli.harmony.render import display_name, one_line, parse_ids, read_document
from harmony_conformance.errors import Exit, UsageError
from harmony_ref import Conversation, HarmonyError, ParseError, Role, encode_with_special_tokens, parse, tokens
from harmony_ref import Json as Wire
from harmony_ref.lenient.result import LenientParse, Remainder
from harmony_ref.lenient.token_text import text_of_tokens

_HEADER_TOKENS = frozenset({tokens.CHANNEL, tokens.CONSTRAIN, tokens.MESSAGE})
_RECIPIENT = " to="
"""The begin of a completion with a recipient before the channel."""


def execute(arguments: Namespace) -> int:
    """Print `{"messages": […]}` on one line; with `--lenient` also `remainder` and `errors`."""
    name = display_name(arguments.file)
    document = read_document(arguments.file)
    ids = parse_ids(arguments.file, document)
    if document and not ids:
        raise UsageError(f"{name}: invalid token ids: expected at least one, got an empty list")
    role = Role(arguments.role) if arguments.role is not None else _implied_role(ids)
    if arguments.lenient:
        result = parse(ids, role, lenient=True)
        _print(_lenient_json(result))
        return Exit.DIVERGES if result.errors else Exit.CONFORMS
    unknown = next((token for token in ids if not tokens.is_known(token)), None)
    if unknown is not None:
        raise UsageError(f"{name}: invalid token id: expected 0 to {tokens.LAST_SPECIAL}, got {unknown}")
    try:
        messages = parse(ids, role)
    except HarmonyError as problem:
        hint = "; --lenient prints the readable parts" if isinstance(problem, ParseError) else ""
        if _is_harmony(document.rstrip("\r\n"), role):
            hint = "; without the line break at its end it is valid"
        raise UsageError(f"{name}: invalid Harmony: {one_line(problem)}{hint}") from None
    _print(Conversation(messages=messages).to_dict())
    return Exit.CONFORMS


def _is_harmony(text: str, role: Role | None) -> bool:
    """Return True if the text is Harmony."""
    try:
        parse(encode_with_special_tokens(text), role)
    except HarmonyError:
        return False
    return True


def _implied_role(ids: Sequence[int]) -> Role | None:
    """Return assistant for a completion, which continues the header of the prompt; None for text with its own header."""
    return (
        Role.ASSISTANT
        if ids and (ids[0] in _HEADER_TOKENS or list(ids[:2]) == encode_with_special_tokens(_RECIPIENT))
        else None
    )


def _print(value: Wire) -> None:
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _lenient_json(result: LenientParse) -> Wire:
    ids = result.tokens
    return {
        **Conversation(messages=result.messages).to_dict(),
        "remainder": None if result.remainder is None else _remainder_json(result.remainder),
        "errors": [
            {
                "rule": error.rule.value,
                "position": error.position,
                "span": list(error.span),
                "text": text_of_tokens(ids[slice(*error.span)]),  # not in any message, so printed here
                "state": error.state.value,
                "message": str(error),
                "expected": error.expected,
            }
            for error in result.errors
        ],
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
