"""Defects of SGLang's own paths: /generate, its parsers, its tokenizer."""

from collections.abc import Callable, Iterator

from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_conformance.reference_server.defects.body_changes import Body, in_member, on_json, on_request
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnStream
from harmony_conformance.reference_server.model.output_events import DONE
from harmony_ref import tokens

_TYPED = "<|constrain|>json<|message|>"
_BEGINNING = "<|start|>assistant<|channel|>commentary"


def _undeclared(is_lost: Callable[[str], bool]) -> Body:
    """Texts of which no call is found: none of their functions is known."""
    return lambda body: {**body, "tools": []} if "tools" in body and is_lost(text(body.get("text"))) else body


def _dotted_unknown(body: JsonObject) -> JsonObject:
    if "tools" not in body:
        return body
    return {**body, "tools": [tool for tool in items(body["tools"]) if "." not in text(at(tool, "function", "name"))]}


def _always_stopped(told: JsonObject) -> JsonObject:
    reason = members(told.get("finish_reason"))
    return {**told, "finish_reason": {"type": "stop", "matched": tokens.RETURN}} if reason else told


def _unseparated(body: JsonObject) -> JsonObject:
    if "reasoning_text" not in body:
        return body
    return {"reasoning_text": "", "text": text(body["reasoning_text"]) + text(body.get("text"))}


def _begun(body: JsonObject) -> JsonObject:
    if "tokens" not in body:
        return body
    shown: list[Json] = [tokens.STARTOFTEXT, *items(body["tokens"])]
    return {**body, "tokens": shown, "count": len(shown)}


def _one_behind(stream: Iterator[Json]) -> Iterator[Json]:
    """Events with only the text that is new, as if they were deltas."""
    before = ""
    for value in stream:
        if not isinstance(value, dict):
            yield value
            continue
        said = text(value.get("text"))
        yield {**value, "text": said.removeprefix(before)}
        before = said


def _without_done(stream: Iterator[Json]) -> Iterator[Json]:
    return (value for value in stream if value != DONE)


DEFECTS = (
    on_json(
        ApiFamily.SGLANG,
        "sglang-always-stopped",
        [],
        "The finish reason is `stop` behind `<|return|>`, whatever ended the answer.",
        in_member("meta_info", _always_stopped),
    ),
    Defect(
        id="sglang-events-of-new-text",
        catalogue=(),
        summary="An event holds all ids so far and only the text that is new.",
        change=OnStream(_one_behind, ApiFamily.SGLANG),
    ),
    Defect(
        id="sglang-stream-without-done",
        catalogue=(),
        summary="The stream of /generate ends without `[DONE]`.",
        change=OnStream(_without_done, ApiFamily.SGLANG),
    ),
    on_json(
        ApiFamily.SGLANG,
        "sglang-reasoning-unseparated",
        [],
        "/separate_reasoning leaves the thought in the text.",
        _unseparated,
    ),
    on_request(
        ApiFamily.SGLANG,
        "sglang-untyped-call-lost",
        ["S01"],
        "/parse_function_call knows no call whose header has no `<|constrain|>json`.",
        _undeclared(lambda written: _TYPED not in written),
    ),
    on_request(
        ApiFamily.SGLANG,
        "sglang-first-call-as-text",
        ["S04"],
        "/parse_function_call knows no call that is the first message of the completion.",
        _undeclared(lambda written: _BEGINNING not in written),
    ),
    on_request(
        ApiFamily.SGLANG,
        "sglang-dotted-name-lost",
        ["S02"],
        "/parse_function_call knows no function whose name has a dot.",
        _dotted_unknown,
    ),
    on_json(
        ApiFamily.SGLANG,
        "sglang-tokenize-with-a-beginning",
        [],
        "/v1/tokenize puts a special token before the text.",
        _begun,
    ),
)
"""These defects."""
