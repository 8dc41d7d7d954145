"""Defects of SGLang's native endpoints: /generate, the parsers and the tokenizer."""

from collections.abc import Callable, Iterator
from functools import partial

from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    BodyChange,
    drop_done,
    in_member,
    on_json,
    on_request,
)
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnStream
from harmony_ref import tokens

_TYPED = "<|constrain|>json<|message|>"
_CALL_HEADER = "<|start|>assistant<|channel|>commentary"


def _undeclared(is_lost: Callable[[str], bool]) -> BodyChange:
    """Parse no call from texts that `is_lost` selects: remove all declared tools."""
    return lambda body: {**body, "tools": []} if "tools" in body and is_lost(text(body.get("text"))) else body


def _dotted_unknown(body: JsonObject) -> JsonObject:
    if "tools" not in body:
        return body
    return {
        **body,
        "tools": [tool for tool in items(body["tools"]) if "." not in text(value_at(tool, "function", "name"))],
    }


def _always_stopped(meta_info: JsonObject) -> JsonObject:
    reason = members(meta_info.get("finish_reason"))
    return {**meta_info, "finish_reason": {"type": "stop", "matched": tokens.RETURN}} if reason else meta_info


def _unseparated(body: JsonObject) -> JsonObject:
    whole = text(body.get("reasoning_text")) + text(body.get("text"))
    return {"reasoning_text": "", "text": whole} if "reasoning_text" in body else body


def _with_start_of_text(body: JsonObject) -> JsonObject:
    ids: list[Json] = [tokens.STARTOFTEXT, *items(body.get("tokens"))]
    return {**body, "tokens": ids, "count": len(ids)} if "tokens" in body else body


def _text_as_deltas(stream: Iterator[Json]) -> Iterator[Json]:
    """Send only the new text in each event instead of the whole text so far."""
    before = ""
    for value in stream:
        if not isinstance(value, dict):
            yield value
            continue
        whole = text(value.get("text"))
        yield {**value, "text": whole.removeprefix(before)}
        before = whole


_json = partial(on_json, ApiFamily.SGLANG)
_request = partial(on_request, ApiFamily.SGLANG)

DEFECTS = (
    _json(
        "sglang-always-stopped",
        "The finish reason is always `stop` with `<|return|>` as the matched token.",
        in_member("meta_info", _always_stopped),
    ),
    Defect(
        "sglang-events-of-new-text",
        "Each event of a stream has all token ids so far but only the new text.",
        OnStream(_text_as_deltas, ApiFamily.SGLANG),
    ),
    Defect(
        "sglang-stream-without-done",
        "The stream of /generate ends without `[DONE]`.",
        OnStream(drop_done, ApiFamily.SGLANG),
    ),
    _json("sglang-reasoning-unseparated", "/separate_reasoning leaves the reasoning in the text.", _unseparated),
    _request(
        "sglang-untyped-call-lost",
        "/parse_function_call ignores calls whose header has no `<|constrain|>json`.",
        _undeclared(lambda output: _TYPED not in output),
        ("S01",),
    ),
    _request(
        "sglang-first-call-as-text",
        "/parse_function_call ignores a call that is the first message of the completion.",
        _undeclared(lambda output: _CALL_HEADER not in output),
        ("S04",),
    ),
    _request(
        "sglang-dotted-name-lost",
        "/parse_function_call ignores functions whose name has a dot.",
        _dotted_unknown,
        ("S02",),
    ),
    _json(
        "sglang-tokenize-with-a-beginning", "/v1/tokenize adds `<|startoftext|>` before the text.", _with_start_of_text
    ),
)
