"""What SGLang's /generate promises, and what its parsers make of Harmony."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.chat_completion import ABORTED
from harmony_conformance.apis.registry import SGLANG_GENERATE
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import ENDINGS, ExpectedOutput, read_ids, told_in_order
from harmony_conformance.evidence.series_pairs import prompt_count
from harmony_conformance.json_value import Json, at, dumps, equal_json, items, number, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, comparison, condition, evidence, only_on, variant
from harmony_conformance.prompts.prompt_parser import show
from harmony_conformance.redactable_text import RedactableText, ReportText, shorten
from harmony_ref import encode_with_special_tokens, tokens

SEPARATE_REASONING = "/separate_reasoning"
PARSE_FUNCTION_CALL = "/parse_function_call"
TOKENIZE = "/v1/tokenize"
_PARSER = "gpt-oss"


@only_on(SGLANG_GENERATE.name)
@evidence
def tells_meta_info(x: Exchange) -> bool:
    """answers of SGLang's generate"""
    return x.api == SGLANG_GENERATE.name and on.ended_well.holds(x) and isinstance(_last(x), dict)


def _last(x: Exchange) -> Json:
    """The answer, of several the first, or the last event of a stream that tells of it."""
    if x.events is None:
        return x.response_json[0] if isinstance(x.response_json, list) and x.response_json else x.response_json
    return next(iter(reversed(_events(x))), None)


def _events(x: Exchange) -> list[Json]:
    held = [event.value for event in x.events.events] if x.events is not None else []
    return [
        value for value in held if isinstance(at(value, "meta_info"), dict) and number(at(value, "index")) in (None, 0)
    ]


@check(MUST, spec="sglang#finish-reason", when=tells_meta_info)
def finish_reason_names_what_matched(x: Exchange) -> Iterator[Finding]:
    """finish_reason is `length` with the number of tokens at the limit, else `stop` with what matched: the token that ended the turn, or the stop string.

    In Harmony the token tells a call from an answer. Who is told that a cut answer has stopped runs half a call. A server that was told to `abort` says so.
    """
    reason, limit = at(_last(x), "meta_info", "finish_reason"), x.limit
    kind, matched = at(reason, "type"), at(reason, "matched")
    ids = x.output.ids
    is_cut = ids is not None and limit is not None and len(ids) >= limit and ids[-1] not in ENDINGS
    if kind == ABORTED:
        yield variant("the server was told to abort the generation", where="/meta_info/finish_reason")
    elif kind not in ("stop", "length"):
        yield _wrong(reason, "stop or length")
    elif is_cut and not x.meets_stop_string and kind != "length":
        yield _wrong(reason, RedactableText("length, at the limit of {} tokens", limit))
    elif kind == "length" and ids and ids[-1] in ENDINGS and not x.ignores_eos:
        yield _wrong(reason, RedactableText("stop, behind {}", show(ids[-1:])))
    elif kind == "stop" and isinstance(matched, str) and matched not in x.stop_strings:
        yield _wrong(reason, "a stop string of the request")
    elif kind == "stop" and ids and ids[-1] in ENDINGS and number(matched) not in (None, ids[-1]):
        yield _wrong(reason, RedactableText("{}, which is {}", ids[-1], show(ids[-1:])))


def _wrong(reason: Json, expected: ReportText) -> Finding:
    return Finding(
        message="finish_reason is not what ended the generation",
        at="/meta_info/finish_reason",
        expected=expected,
        actual=shorten(dumps(reason)),
    )


@only_on(SGLANG_GENERATE.name)
@evidence
def tells_all_so_far(x: Exchange) -> bool:
    """streams of SGLang's generate whose events hold all that was written so far: the last has as many ids as it counts, and is not the only one"""
    if x.api != SGLANG_GENERATE.name or not on.ended_well.holds(x):
        return False
    events = _events(x)
    if len(events) < 2:  # noqa: PLR2004 - one event after another
        return False
    counted = number(at(events[-1], "meta_info", "completion_tokens"))
    return counted is not None and len(items(at(events[-1], "output_ids"))) == counted


@check(MUST, spec="sglang#stream", when=tells_all_so_far)
def events_go_on_from_each_other(x: Exchange) -> Iterator[Finding]:
    """Each event of a stream begins with the text and the ids of the one before, and counts the ids that it holds.

    A client shows what is longer than what it has shown: a text that is shorter, or another, leaves wrong words on the screen.
    """
    said, ids = "", list[Json]()
    for place, event in enumerate(_events(x)):
        now, held = text(at(event, "text")), items(at(event, "output_ids"))
        counted = number(at(event, "meta_info", "completion_tokens"))
        if not now.startswith(said.rstrip("\ufffd")) and not x.stop_strings:
            yield Finding(
                message="an event does not begin with the text of the one before",
                at=f"event {place}/text",
                expected=shorten(said),
                actual=shorten(now),
            )
            return
        if held[: len(ids)] != ids or counted not in (None, len(held)):
            yield Finding(
                message="an event does not hold the ids that were written so far",
                at=f"event {place}/output_ids",
                expected=RedactableText("{} ids, the first {} as before", counted, len(ids)),
                actual=RedactableText("{} ids", len(held)),
            )
            return
        said, ids = now, held


def _parsed_by(x: Exchange, path: str, parser: str) -> bool:
    return (
        x.request.path.endswith(path)
        and at(x.request.json, parser) == _PARSER
        and x.response is not None
        and x.response.is_success
        and _meaning(x) is not None
    )


def _meaning(x: Exchange) -> ExpectedOutput | None:
    """What the text of a request means, where it is a whole completion in Harmony."""
    written = at(x.request.json, "text")
    if not isinstance(written, str):
        return None
    ids = encode_with_special_tokens(written)
    return read_ids(ids) if ids and ids[-1] in tokens.STOP_TOKENS else None


@condition
def separates_reasoning(x: Exchange) -> bool:
    """answers of /separate_reasoning about a completion that is well-formed Harmony"""
    return _parsed_by(x, SEPARATE_REASONING, "reasoning_parser")


@check(MUST, spec="sglang#separate-reasoning", when=separates_reasoning)
def reasoning_is_separated(x: Exchange) -> Iterator[Finding]:
    """`reasoning_text` is what was thought, and nothing else; `text` is what was said, and the calls as they were written.

    It is the parser of the chat, asked by itself: what it leaves in the text is shown to the user.
    """
    meant = _meaning(x)
    if meant is None:
        return
    thought, said = text(at(x.response_json, "reasoning_text")), text(at(x.response_json, "text"))
    if not told_in_order(meant.reasoning, thought):
        yield Finding(
            message="reasoning_text is not what was thought",
            at="/reasoning_text",
            expected=shorten(dumps(list(meant.reasoning))),
            actual=shorten(thought),
        )
    lost = next((part for part in (*meant.shown, *(call.arguments for call in meant.calls)) if part not in said), None)
    if lost is not None or (not meant.calls and not told_in_order(meant.shown, said)):
        yield Finding(
            message="text is not what was said",
            at="/text",
            expected=shorten(dumps(list(meant.shown)) if lost is None else lost),
            actual=shorten(said),
        )


@condition
def parses_calls(x: Exchange) -> bool:
    """answers of /parse_function_call about a completion that is well-formed Harmony, whose calls are of declared functions, with JSON for arguments"""
    if not _parsed_by(x, PARSE_FUNCTION_CALL, "tool_call_parser"):
        return False
    meant = _meaning(x)
    declared = {text(at(tool, "function", "name")) for tool in items(at(x.request.json, "tools"))}
    return meant is not None and all(
        call.name in declared and equal_json(call.arguments, call.arguments) for call in meant.calls
    )


@check(MUST, spec="sglang#parse-function-call", when=parses_calls)
def written_calls_are_parsed(x: Exchange) -> Iterator[Finding]:
    """`calls` are the calls that were written, by name and arguments, in whichever of the forms that Harmony has; a preamble stays in `normal_text`.

    A detector that knows one spelling of the header loses the calls of all others: the model has called, and nobody hears it (defects S01, S02, S04).
    """
    meant = _meaning(x)
    if meant is None:
        return
    told = items(at(x.response_json, "calls"))
    found = [(text(at(call, "name")), text(at(call, "parameters"))) for call in told]
    is_same = len(found) == len(meant.calls) and all(
        name == call.name and equal_json(arguments, call.arguments)
        for (name, arguments), call in zip(found, meant.calls, strict=True)
    )
    if not is_same:
        yield Finding(
            message="the calls are not those that were written",
            at="/calls",
            expected=shorten(dumps([f"{call.name}({call.arguments})" for call in meant.calls])),
            actual=shorten(dumps(told)),
        )
    rest = text(at(x.response_json, "normal_text"))
    lost = next((part for part in meant.shown if part.strip() not in rest), None)
    if lost is not None:
        yield Finding(
            message="what was said beside the call is lost",
            at="/normal_text",
            expected=shorten(lost),
            actual=shorten(rest),
        )


def _pairs(series: Series) -> Iterator[tuple[Exchange, Exchange]]:
    """Answers to a prompt that is a text, and those of /v1/tokenize about the same text."""
    shown = [x for x in series.exchanges.values() if x.request.path.endswith(TOKENIZE) and _ids(x)]
    for x in series.exchanges.values():
        written = at(x.request.json, "text")
        for other in shown:
            if tells_meta_info.holds(x) and isinstance(written, str) and at(other.request.json, "prompt") == written:
                yield x, other


def _ids(x: Exchange) -> list[int]:
    ids = [number(one) for one in items(at(x.response_json, "tokens"))]
    return [one for one in ids if one is not None] if None not in ids else []


@condition
def has_prompt_and_tokens(series: Series) -> bool:
    """a prompt that SGLang's generate continued, and what /v1/tokenize shows of the same text"""
    return any(True for _ in _pairs(series))


@comparison(MUST, spec="sglang#tokenize", when=has_prompt_and_tokens)
def tokenize_shows_what_is_fed(series: Series) -> Iterator[Finding]:
    """`/v1/tokenize` shows of a text the tokens that /generate is fed of it: as many as are counted, and those that are returned.

    Who counts with it beforehand, or cuts to a length, works with another prompt than the model.
    """
    for x, other in _pairs(series):
        ids, fed, count = _ids(other), x.prompt.ids, prompt_count(x)
        if count not in (None, len(ids)) or (fed is not None and list(fed) != ids):
            yield Finding(
                message="/v1/tokenize shows other tokens than are fed",
                at="/tokens",
                expected=shorten(show(fed)) if fed is not None else RedactableText("{} tokens", count),
                actual=shorten(show(ids)) if fed is not None else RedactableText("{} tokens", len(ids)),
                exchange=other.id,
            )
