"""The message and its content blocks: members, ids, signatures, and the place of thinking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import LiteralString

from harmony_conformance.checks.messages import views
from harmony_conformance.evidence.emitted_ids import strip_endoftext
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, members, pointer, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, cited, mismatch, ruled, variant
from harmony_conformance.judge.condition import condition, evidence
from harmony_conformance.judge.rulings import EMPTY_TEXT_BLOCKS
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_ref import HarmonyError, Role, decode, parse

THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})
_ASKS_THINKING = frozenset({"enabled", "adaptive", "between_tools"})
_CUT = frozenset({"max_tokens", "model_context_window_exceeded", "stop_sequence"})
_ID = re.compile(r"[a-zA-Z0-9_-]+")

_Rule = tuple[Callable[[Json], bool], LiteralString]


def _is_filled(value: Json) -> bool:
    return isinstance(value, str) and bool(value)


def _is(word: LiteralString) -> _Rule:
    return lambda value: value == word, word


_FILLED: _Rule = (_is_filled, "a string that is not empty")
_COUNT: _Rule = (lambda value: integer(value) is not None, "a whole number")

_MESSAGE: dict[LiteralString, _Rule] = {
    "id": _FILLED,
    "type": _is("message"),
    "role": _is("assistant"),
    "model": _FILLED,
    "content": (lambda value: isinstance(value, list), "a list of blocks"),
    "stop_reason": _FILLED,
}
_USAGE: dict[LiteralString, _Rule] = {"input_tokens": _COUNT, "output_tokens": _COUNT}
_BLOCKS: dict[str, dict[LiteralString, _Rule]] = {
    "text": {"text": _FILLED},
    "thinking": {"thinking": (lambda value: isinstance(value, str), "a string")},
    "tool_use": {
        "id": (lambda value: isinstance(value, str) and _ID.fullmatch(value) is not None, "letters, digits, _ and -"),
        "name": _FILLED,
        "input": (lambda value: isinstance(value, dict), "an object"),
    },
}
"""The members of a block by its type. Other types belong to tools of Anthropic's servers."""
_CLAUSES = {"id": "messages#call-id", "name": "messages#call-name", "input": "messages#call-input"}
"""The clauses on the members of a `tool_use` block."""


def _faults(value: JsonObject, rules: dict[LiteralString, _Rule], *where: str | int) -> Iterator[Finding]:
    for name, (is_valid, expected) in rules.items():
        if not is_valid(value.get(name)):
            message = f"`{name}` is missing, empty or of the wrong type"
            yield mismatch(message, pointer(*where, name), expected, shorten(dumps(value.get(name))))


@check(MUST, spec="messages#object", when=views.ANSWERED)
def message_has_its_members(x: Exchange) -> Iterator[Finding]:
    """A message has its id, type, role, model, content, stop reason and usage; in a stream from `message_start` and `message_delta`.

    The official client builds its object from these members, and its typed fields are None or raise where one is missing.
    """
    message = views.message(x)
    for fault in _faults(message, _MESSAGE):
        yield replace(fault, clause="messages#content") if fault.location == pointer("content") else fault
    yield from _faults(members(message.get("usage")), _USAGE, "usage")


@check(MUST, spec="messages#content", when=views.ANSWERED)
def blocks_have_their_members(x: Exchange) -> Iterator[Finding]:
    """Each block has the members of its type: text that is not empty, an input that is an object, an id that can go back.

    Clients send the blocks back unchanged, and the API refuses an empty text and an id with other characters. An id without `toolu_` is a variant.
    A stream that passes on arguments that are no object is one too: the client has the pieces before the server can see that.
    """
    seen: set[str] = set()
    blocks = views.blocks(x)
    is_cut = text(views.message(x).get("stop_reason")) in _CUT
    for place, shown in enumerate(blocks):
        block = shown
        if is_cut and place == len(blocks) - 1 and isinstance(block.get("input"), str):
            block = {**block, "input": {}}  # the limit cut its pieces
        elif "input" in block and _passes_on_other_arguments(x, block["input"]):
            yield variant("a stream passes on arguments that are no object", where=pointer("content", place, "input"))
            block = {**block, "input": {}}
        for fault in _faults(block, _BLOCKS.get(text(block.get("type")), {"type": _FILLED}), "content", place):
            fault = replace(fault, clause=_CLAUSES.get(fault.location.rpartition("/")[2], ""))  # noqa: PLW2901 - the same fault
            yield ruled(fault, EMPTY_TEXT_BLOCKS) if block.get("text") == "" else fault
        identity = text(block.get("id"))
        if identity in seen:
            expected, where = "another id for each block", pointer("content", place, "id")
            yield cited(mismatch("two blocks have the same id", where, expected, quote(identity)), _CLAUSES["id"])
        elif block.get("type") == "tool_use" and identity and not identity.startswith("toolu_"):
            yield variant("the id of a call does not begin with toolu_", where=pointer("content", place, "id"))
        seen |= {identity} if identity else set()


def _passes_on_other_arguments(x: Exchange, given: Json) -> bool:
    """Return True for the input of a stream that is no object, because the model wrote it so."""
    if x.events is None or x.script is None or isinstance(given, dict):
        return False
    shown = given.strip() if isinstance(given, str) else dumps(given)
    return "".join(shown.split()) in "".join(decode(x.script).split())


@condition
def thought_in_blocks(x: Exchange) -> bool:
    """answers with a thinking block"""
    return any(block.get("type") == "thinking" for block in views.blocks(x))


@check(MUST, spec="messages#signature", when=(*views.ANSWERED, thought_in_blocks))
def thinking_is_signed(x: Exchange) -> Iterator[Finding]:
    """A thinking block has a signature, in a stream by a `signature_delta` before the block ends.

    Clients send thinking back only with its signature: without one a tool loop loses the reasoning. Any text will do, since servers of gpt-oss do not
    verify it. An empty one is a variant: the type is right, but some clients drop such thinking.
    """
    for place, block in enumerate(views.blocks(x)):
        signature, where = block.get("signature"), pointer("content", place, "signature")
        if block.get("type") == "thinking" and not isinstance(signature, str):
            yield mismatch("a thinking block has no signature", where, "a string", shorten(dumps(signature)))
        elif block.get("type") == "thinking" and not signature:
            yield variant("the signature of a thinking block is empty", where=where)


@condition
def asks_thinking(x: Exchange) -> bool:
    """requests that turn `thinking` on"""
    return text(value_at(x.request.json, "thinking", "type")) in _ASKS_THINKING


@check(
    MUST,
    spec="messages#thinking",
    when=(*views.ANSWERED, asks_thinking, on.expected_output_is_known, on.expects_reasoning),
)
def reasoning_is_a_thinking_block(x: Exchange) -> Iterator[Finding]:
    """If the request turns thinking on, the analysis channel comes back as a thinking block.

    Otherwise a tool loop has nothing to send back, and the model has forgotten why it made the call (litellm#29518).
    """
    kinds = [text(block.get("type")) for block in views.blocks(x)]
    if THINKING_BLOCKS.isdisjoint(kinds):
        message = "the model reasoned, and the answer has no thinking block"
        yield mismatch(message, "/content", "a block of the type thinking", quote(", ".join(kinds) or "no block"))


@evidence
def begins_with_analysis(x: Exchange) -> bool:
    """answers whose output is known to begin with the analysis channel"""
    try:
        first = next(iter(parse(strip_endoftext(x.output.ids or ()), role=Role.ASSISTANT)), None)
    except HarmonyError:
        return False
    return first is not None and first.channel == "analysis" and first.recipient is None


@check(MUST, spec="messages#thinking", when=(*views.ANSWERED, thought_in_blocks, begins_with_analysis))
def thinking_comes_first(x: Exchange) -> Iterator[Finding]:
    """The thinking that began the output is the first block, before text and calls.

    The API refuses an assistant message that is sent back with its thinking in another place.
    """
    kinds = [text(block.get("type")) for block in views.blocks(x)]
    if kinds[0] not in THINKING_BLOCKS:
        actual = RedactableText("{} before thinking", quote(", ".join(kinds[: kinds.index("thinking")])))
        yield mismatch("a block comes before the thinking that began the output", "/content/0/type", "thinking", actual)
