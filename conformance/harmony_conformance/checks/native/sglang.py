"""SGLang: finish reasons and streams of /generate, its Harmony parsers, and /v1/tokenize."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.chat_completion import ABORTED
from harmony_conformance.apis.json_equality import equal_json
from harmony_conformance.apis.registry import SGLANG_GENERATE
from harmony_conformance.evidence.emitted_ids import GENERATION_END_TOKENS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import ExpectedOutput, has_texts_in_order, parse_output
from harmony_conformance.evidence.series_pairs import prompt_count
from harmony_conformance.json_value import Json, dumps, integer, items, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, only_on
from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.redactable_text import RedactableText, ReportText, shorten
from harmony_ref import encode_with_special_tokens, tokens

SEPARATE_REASONING = "/separate_reasoning"
PARSE_FUNCTION_CALL = "/parse_function_call"
TOKENIZE = "/v1/tokenize"
_PARSER = "gpt-oss"


@only_on(SGLANG_GENERATE.name)
@evidence
def has_meta_info(x: Exchange) -> bool:
    """answers of SGLang's generate"""
    return x.api == SGLANG_GENERATE.name and on.is_complete_answer.holds(x) and isinstance(_last(x), dict)


def _last(x: Exchange) -> Json:
    """Return the (first) answer, or its last event in a stream."""
    if x.events is None:
        return x.response_json[0] if isinstance(x.response_json, list) and x.response_json else x.response_json
    return next(iter(reversed(_events(x))), None)


def _events(x: Exchange) -> list[Json]:
    values = [event.value for event in x.events.events] if x.events is not None else []
    described = (one for one in values if isinstance(value_at(one, "meta_info"), dict))
    return [one for one in described if integer(value_at(one, "index")) in (None, 0)]


@check(MUST, spec="sglang#finish-reason", when=has_meta_info)
def finish_reason_names_what_matched(x: Exchange) -> Iterator[Finding]:
    """finish_reason is `length` with the token count at the limit, else `stop` with the matched stop token or stop string.

    In Harmony the stop token distinguishes a call from an answer. If a cut answer is reported as stopped, clients run half a call.
    After an `abort` request the server reports `abort`.
    """
    reason, limit = value_at(_last(x), "meta_info", "finish_reason"), x.max_output_tokens
    kind, matched = value_at(reason, "type"), value_at(reason, "matched")
    ids = x.output.ids
    is_cut = ids is not None and limit is not None and len(ids) >= limit and ids[-1] not in GENERATION_END_TOKENS
    if kind == ABORTED:
        yield variant("the generation was aborted on request", where="/meta_info/finish_reason")
    elif kind not in ("stop", "length"):
        yield _finish_reason_mismatch(reason, "stop or length")
    elif is_cut and not x.has_stop_string and kind != "length":
        yield _finish_reason_mismatch(reason, RedactableText("length, at the limit of {} tokens", limit))
    elif kind == "length" and ids and ids[-1] in GENERATION_END_TOKENS and not x.ignores_eos:
        yield _finish_reason_mismatch(reason, RedactableText("stop, after {}", format_ids(ids[-1:])))
    elif kind == "stop" and isinstance(matched, str) and matched not in x.stop_strings:
        yield _finish_reason_mismatch(reason, "a stop string of the request")
    elif kind == "stop" and ids and ids[-1] in GENERATION_END_TOKENS and integer(matched) not in (None, ids[-1]):
        yield _finish_reason_mismatch(reason, RedactableText("{}, which is {}", ids[-1], format_ids(ids[-1:])))


def _finish_reason_mismatch(reason: Json, expected: ReportText) -> Finding:
    message = "finish_reason does not match the end of the output"
    return mismatch(message, "/meta_info/finish_reason", expected, shorten(dumps(reason)))


@only_on(SGLANG_GENERATE.name)
@evidence
def has_cumulative_events(x: Exchange) -> bool:
    """streams of SGLang's generate with two or more cumulative events: the last has as many ids as it counts"""
    if x.api != SGLANG_GENERATE.name or not on.is_complete_answer.holds(x):
        return False
    events = _events(x)
    if len(events) < 2:  # noqa: PLR2004 - one event after another
        return False
    count = integer(value_at(events[-1], "meta_info", "completion_tokens"))
    return count is not None and len(items(value_at(events[-1], "output_ids"))) == count


@check(MUST, spec="sglang#stream", when=has_cumulative_events)
def events_go_on_from_each_other(x: Exchange) -> Iterator[Finding]:
    """Each event of a stream begins with the text and the ids of the previous event, and counts its ids correctly.

    A client appends the part beyond the text shown so far. A shorter or different text leaves wrong words on the screen.
    """
    text_before, ids_before = "", list[Json]()
    for place, event in enumerate(_events(x)):
        text_now, ids = text(value_at(event, "text")), items(value_at(event, "output_ids"))
        count = integer(value_at(event, "meta_info", "completion_tokens"))
        if not text_now.startswith(text_before.rstrip("\ufffd")) and not x.stop_strings:
            message = "an event does not begin with the text of the previous event"
            yield mismatch(message, f"event {place}/text", shorten(text_before), shorten(text_now))
            return
        if ids[: len(ids_before)] != ids_before or count not in (None, len(ids)):
            message = "an event does not have all ids generated so far"
            expected = RedactableText("{} ids, the first {} as before", count, len(ids_before))
            yield mismatch(message, f"event {place}/output_ids", expected, RedactableText("{} ids", len(ids)))
            return
        text_before, ids_before = text_now, ids


def _is_parser_answer(x: Exchange, path: str, parser: str) -> bool:
    is_asked = x.request.path.endswith(path) and value_at(x.request.json, parser) == _PARSER
    return is_asked and x.response is not None and x.response.is_success and _parsed_text(x) is not None


def _parsed_text(x: Exchange) -> ExpectedOutput | None:
    """Parse the text of a request, None if it is not a complete Harmony completion."""
    completion = value_at(x.request.json, "text")
    if not isinstance(completion, str):
        return None
    ids = encode_with_special_tokens(completion)
    return parse_output(ids) if ids and ids[-1] in tokens.STOP_TOKENS else None


@condition
def separates_reasoning(x: Exchange) -> bool:
    """answers of /separate_reasoning about a completion that is well-formed Harmony"""
    return _is_parser_answer(x, SEPARATE_REASONING, "reasoning_parser")


@check(MUST, spec="sglang#separate-reasoning", when=separates_reasoning)
def reasoning_is_separated(x: Exchange) -> Iterator[Finding]:
    """`reasoning_text` is exactly the reasoning; `text` has the visible text, and the calls unparsed.

    The chat API uses the same parser: reasoning that it leaves in the text is shown to the user.
    """
    expected = _parsed_text(x)
    if expected is None:
        return
    reasoning, rest = text(value_at(x.response_json, "reasoning_text")), text(value_at(x.response_json, "text"))
    if not has_texts_in_order(expected.reasoning, reasoning):
        message = "reasoning_text is not the reasoning of the completion"
        yield mismatch(message, "/reasoning_text", shorten(dumps(list(expected.reasoning))), shorten(reasoning))
    arguments = (call.arguments for call in expected.calls)
    lost = next((part for part in (*expected.user_texts, *arguments) if part not in rest), None)
    if lost is not None or (not expected.calls and not has_texts_in_order(expected.user_texts, rest)):
        message = "text is not the visible text of the completion"
        wanted = shorten(dumps(list(expected.user_texts)) if lost is None else lost)
        yield mismatch(message, "/text", wanted, shorten(rest))


@condition
def parses_calls(x: Exchange) -> bool:
    """answers of /parse_function_call about a well-formed Harmony completion that calls declared functions with JSON arguments"""
    if not _is_parser_answer(x, PARSE_FUNCTION_CALL, "tool_call_parser"):
        return False
    expected = _parsed_text(x)
    declared = {text(value_at(tool, "function", "name")) for tool in items(value_at(x.request.json, "tools"))}
    return expected is not None and all(
        call.name in declared and equal_json(call.arguments, call.arguments) for call in expected.calls
    )


@check(MUST, spec="sglang#parse-function-call", when=parses_calls)
def written_calls_are_parsed(x: Exchange) -> Iterator[Finding]:
    """`calls` has the calls of the completion with name and arguments, for every header form of Harmony.

    A preamble stays in `normal_text`. A detector that knows one spelling of the header loses all other calls
    without an error (defects S01, S02, S04).
    """
    expected = _parsed_text(x)
    if expected is None:
        return
    calls = items(value_at(x.response_json, "calls"))
    parsed = [(text(value_at(call, "name")), text(value_at(call, "parameters"))) for call in calls]
    pairs = zip(parsed, expected.calls, strict=False)
    same = [name == call.name and equal_json(arguments, call.arguments) for (name, arguments), call in pairs]
    is_same = len(parsed) == len(expected.calls) and all(same)
    if not is_same:
        wanted = shorten(dumps([f"{call.name}({call.arguments})" for call in expected.calls]))
        yield mismatch("the calls are not those of the completion", "/calls", wanted, shorten(dumps(calls)))
    rest = text(value_at(x.response_json, "normal_text"))
    lost = next((part for part in expected.user_texts if part.strip() not in rest), None)
    if lost is not None:
        yield mismatch("the text before the call is lost", "/normal_text", shorten(lost), shorten(rest))


def _pairs(series: Series) -> Iterator[tuple[Exchange, Exchange]]:
    """Yield answers to a text prompt, each with an answer of /v1/tokenize about the same text."""
    tokenized = [x for x in series.exchanges.values() if x.request.path.endswith(TOKENIZE) and _ids(x)]
    for x in series.exchanges.values():
        prompt = value_at(x.request.json, "text")
        for other in tokenized:
            if has_meta_info.holds(x) and isinstance(prompt, str) and value_at(other.request.json, "prompt") == prompt:
                yield x, other


def _ids(x: Exchange) -> list[int]:
    ids = [integer(one) for one in items(value_at(x.response_json, "tokens"))]
    return [one for one in ids if one is not None] if None not in ids else []


@condition
def has_prompt_and_tokens(series: Series) -> bool:
    """a prompt that SGLang's generate continued, and the answer of /v1/tokenize for the same text"""
    return any(True for _ in _pairs(series))


@comparison(MUST, spec="sglang#tokenize", when=has_prompt_and_tokens)
def tokenize_shows_what_is_fed(series: Series) -> Iterator[Finding]:
    """`/v1/tokenize` returns the prompt tokens that /generate uses for the same text: the same count and the same ids.

    Otherwise clients that count tokens or truncate texts with it work with a different prompt than the model.
    """
    for x, other in _pairs(series):
        ids, prompt, count = _ids(other), x.prompt.ids, prompt_count(x)
        if count not in (None, len(ids)) or (prompt is not None and list(prompt) != ids):
            message = "/v1/tokenize returns other tokens than the prompt of /generate"
            expected = shorten(format_ids(prompt)) if prompt is not None else RedactableText("{} tokens", count)
            actual = shorten(format_ids(ids)) if prompt is not None else RedactableText("{} tokens", len(ids))
            yield mismatch(message, "/tokens", expected, actual, exchange=other.id)
