"""TGI: every token in the details, why it ended, and what /chat_tokenize shows."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.registry import TGI, TGI_GENERATE
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import ENDINGS
from harmony_conformance.evidence.series_pairs import prompt_count
from harmony_conformance.json_value import Json, at, dumps, items, number, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, comparison, condition, evidence, only_on, series_only
from harmony_conformance.prompts.prompt_parser import show
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_conformance.transport.messages import NO_HEADERS
from harmony_conformance.transport.sse import Event
from harmony_ref import decode, tokens

TOKENIZED = "/chat_tokenize"


@only_on(TGI_GENERATE.name)
@evidence
def shows_details(x: Exchange) -> bool:
    """answers of TGI's generate with the details of their tokens"""
    return x.api == TGI_GENERATE.name and on.ended_well.holds(x) and bool(_tokens(x)) and _details(x) is not None


@only_on(TGI_GENERATE.name)
@evidence
def shows_how_it_ended(x: Exchange) -> bool:
    """answers of TGI's generate with the details of their tokens, and streams of tokens that end before their text"""
    broken = x.api == TGI_GENERATE.name and on.ended_well.holds(x) and bool(_told_tokens(x)) and not _has_text(x)
    return broken or shows_details.holds(x)


def _has_text(x: Exchange) -> bool:
    return x.events is not None and any(isinstance(at(one.value, "generated_text"), str) for one in x.events.events)


def _tokens(x: Exchange) -> list[Json]:
    """The entries of the tokens, of a stream one from each event."""
    if x.events is not None:
        return [at(event.value, "token") for event in _told_tokens(x)]
    return items(at(_details(x), "tokens"))


def _told_tokens(x: Exchange) -> list[Event]:
    """The events of a stream that tell a token each."""
    return [event for event in x.events.events if at(event.value, "token") is not None] if x.events is not None else []


def _details(x: Exchange) -> Json:
    if x.events is not None:
        return at(x.events.events[-1].value, "details") if x.events.events else None
    return at(_answer(x), "details")


def _answer(x: Exchange) -> Json:
    """The answer, of the list that `/` makes of it the only one."""
    return x.response_json[0] if isinstance(x.response_json, list) and x.response_json else x.response_json


def _generated(x: Exchange) -> str:
    told = x.events.events[-1].value if x.events is not None and x.events.events else _answer(x)
    return text(at(told, "generated_text"))


@check(MUST, spec="tgi#details", when=shows_details)
def tokens_are_all_told(x: Exchange) -> Iterator[Finding]:
    """Every token that was generated is told, special ones too: as many as are counted, in their order, and the ordinary ones spell the generated text.

    Who reads Harmony himself reads it from these ids: without the markers thought and answer run into each other.
    """
    entries = _tokens(x)
    counted = number(at(_details(x), "generated_tokens"))
    ids = [found for entry in entries if (found := number(at(entry, "id"))) is not None and tokens.is_known(found)]
    if counted != len(entries) or len(ids) != len(entries):
        yield Finding(
            message="the tokens that are told are not those that are counted",
            at="/details/tokens",
            expected=RedactableText("{} tokens, each with its id", counted),
            actual=RedactableText("{} tokens", len(ids)),
        )
        return
    marked = next((entry for entry, one in zip(entries, ids, strict=True) if _is_mismarked(entry, one)), None)
    if marked is not None:
        yield Finding(
            message="a token is told as what it is not",
            at="/details/tokens/special",
            expected="special for the markers, and for nothing else",
            actual=shorten(dumps(marked)),
        )
    order = [number(at(event.value, "index")) for event in _told_tokens(x)]
    if None not in order and order != list(range(1, len(order) + 1)):
        yield Finding(
            message="the tokens are not told in their order",
            at="/index",
            expected=RedactableText("1 to {}, one after the other", len(order)),
            actual=shorten(dumps([*order])),
        )
    spelled = decode([one for one in ids if not tokens.is_special(one)])
    asked = text(at(x.request.json, "inputs")) if at(x.request.json, "parameters", "return_full_text") is True else ""
    if _generated(x) not in (asked + spelled, asked + decode(ids)):
        yield Finding(
            message="the tokens do not spell the generated text",
            at="/generated_text",
            expected=shorten(asked + spelled),
            actual=shorten(_generated(x)),
        )


def _is_mismarked(entry: Json, token: int) -> bool:
    return at(entry, "special") is not tokens.is_special(token)


@check(MUST, spec="tgi#finish-reason", when=shows_how_it_ended)
def finish_reason_tells_why(x: Exchange) -> Iterator[Finding]:
    """finish_reason is `eos_token` behind a token that ends the turn, `length` at the limit, and `stop_sequence` where a stop string was met.

    Who takes a cut answer for a whole one runs half a call. The last event of a stream has all of the text: one without has broken off.
    """
    if x.events is not None and not _has_text(x):
        yield Finding(
            message="the stream ends before the event that has its text",
            at=f"event {len(x.events.events)}",
            expected="generated_text",
            actual=shorten(dumps(x.events.events[-1].value)),
        )
        return
    said = at(_details(x), "finish_reason")
    ids = [number(at(entry, "id")) for entry in _tokens(x)]
    limit = number(at(x.request.json, "parameters", "max_new_tokens"))
    stops = [text(stop) for stop in items(at(x.request.json, "parameters", "stop"))]
    right = set[str]()
    if any(stop and stop in _generated(x) for stop in stops):
        right.add("stop_sequence")
    if ids[-1] in ENDINGS:
        right.add("eos_token")
    elif limit is not None and len(ids) >= limit:
        right.add("length")
    elif not right:
        right |= {"length", "eos_token"}  # a limit of the server's own, or a token that ends other models' turns
    if said not in right:
        yield Finding(
            message="finish_reason is not why the generation ended",
            at="/details/finish_reason",
            expected=quote(" or ".join(sorted(right))),
            actual=RedactableText(
                "{} behind {}", shorten(dumps(said)), show([one for one in ids[-1:] if one is not None])
            ),
        )


@only_on(TGI.name, TGI_GENERATE.name)
@evidence
def headers_count(x: Exchange) -> bool:
    """answers of TGI whose headers count tokens, and so does the body; of several (`best_of`) they count the first"""
    headers = x.response.headers if x.response is not None else NO_HEADERS
    is_tgi = x.api in (TGI.name, TGI_GENERATE.name) and on.ended_well.holds(x) and not x.choice
    return is_tgi and any(name in headers and count is not None for name, count in _counts(x).items())


def _counts(x: Exchange) -> dict[str, int | None]:
    """What the body counts, by the header that counts it too."""
    usage = x.turn.usage if x.turn is not None else None
    fed = len(x.prompt.ids) if x.prompt.ids is not None else x.prompt.count
    written = usage.completion_tokens if usage is not None else None
    if x.api == TGI_GENERATE.name:
        written = number(at(_details(x), "generated_tokens"))
    return {"x-prompt-tokens": fed, "x-generated-tokens": written}


@check(MUST, spec="tgi#headers", when=headers_count)
def headers_agree_with_the_body(x: Exchange) -> Iterator[Finding]:
    """The headers `x-prompt-tokens` and `x-generated-tokens` count what the body counts.

    A gateway bills by the headers, since it need not read the body then; where they differ, one of the two is paid that was not spent.
    """
    headers = x.response.headers if x.response is not None else NO_HEADERS
    for name, count in _counts(x).items():
        told = headers.get(name)
        if told is not None and count is not None and told.strip() != str(count):
            yield Finding(
                message="a header counts other tokens than the body",
                at=f"header {name}",
                expected=quote(count),
                actual=shorten(told),
            )


def _pairs(series: Series) -> Iterator[tuple[Exchange, list[int]]]:
    """Answers of TGI's chat, and the ids that /chat_tokenize shows of the same messages."""
    shown = [
        (x, ids)
        for x in series.exchanges.values()
        if x.request.path.endswith(TOKENIZED) and (ids := _shown(x.response_json))
    ]
    for x in series.exchanges.values():
        for other, ids in shown:
            if x.api == TGI.name and x is not other and x.turn is not None and _is_same(x, other):
                yield x, ids


def _shown(told: Json) -> list[int]:
    ids = [number(at(entry, "id")) for entry in items(at(told, "tokenize_response"))]
    return [one for one in ids if one is not None]


def _is_same(one: Exchange, other: Exchange) -> bool:
    return all(
        dumps(at(one.chat_request, name)) == dumps(at(other.chat_request, name)) for name in ("messages", "tools")
    )


@series_only
@condition
def has_chat_and_tokens(series: Series) -> bool:
    """a chat with TGI and the tokens that /chat_tokenize shows of the same request"""
    return any(True for _ in _pairs(series))


@comparison(MUST, spec="tgi#chat-tokenize", when=has_chat_and_tokens)
def chat_tokenize_shows_the_prompt(series: Series) -> Iterator[Finding]:
    """`/chat_tokenize` shows the prompt that the same chat is fed: as many tokens as it counts, and those that it shows.

    It is the only window on TGI's prompts; one that looks at another prompt proves nothing.
    """
    for x, ids in _pairs(series):
        fed, count = x.prompt.ids, prompt_count(x)
        if count not in (None, len(ids)):
            yield Finding(
                message="/chat_tokenize shows another number of tokens than the chat counts",
                at="/tokenize_response",
                expected=RedactableText("{} tokens", count),
                actual=RedactableText("{} tokens", len(ids)),
                exchange=x.id,
            )
        elif fed is not None and list(fed) != ids:
            yield Finding(
                message="/chat_tokenize shows other tokens than are fed",
                at="/tokenize_response",
                expected=shorten(show(fed)),
                actual=shorten(show(ids)),
                exchange=x.id,
            )
