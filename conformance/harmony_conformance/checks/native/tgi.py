"""TGI: the tokens in the details, finish reasons, count headers, and /chat_tokenize."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.registry import TGI, TGI_GENERATE
from harmony_conformance.evidence.emitted_ids import GENERATION_END_TOKENS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import prompt_count
from harmony_conformance.json_value import Json, dumps, integer, items, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, comparison, mismatch, ruled
from harmony_conformance.judge.condition import condition, evidence, only_on, series_only
from harmony_conformance.judge.rulings import COUNTS_OF_ENDPOINTS
from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_conformance.transport.messages import NO_HEADERS
from harmony_conformance.transport.sse import Event
from harmony_ref import decode, tokens

CHAT_TOKENIZE = "/chat_tokenize"


@only_on(TGI_GENERATE.name)
@evidence
def shows_details(x: Exchange) -> bool:
    """answers of TGI's generate with the details of their tokens"""
    return _is_complete(x) and bool(_tokens(x)) and _details(x) is not None


@only_on(TGI_GENERATE.name)
@evidence
def shows_how_it_ended(x: Exchange) -> bool:
    """answers of TGI's generate with the details of their tokens, and streams of tokens that end before their text"""
    is_broken = _is_complete(x) and bool(_token_events(x)) and not _has_text(x)
    return is_broken or shows_details.holds(x)


def _is_complete(x: Exchange) -> bool:
    return x.api == TGI_GENERATE.name and on.is_complete_answer.holds(x)


def _has_text(x: Exchange) -> bool:
    events = x.events.events if x.events is not None else ()
    return any(isinstance(value_at(one.value, "generated_text"), str) for one in events)


def _tokens(x: Exchange) -> list[Json]:
    if x.events is not None:
        return [value_at(event.value, "token") for event in _token_events(x)]
    return items(value_at(_details(x), "tokens"))


def _token_events(x: Exchange) -> list[Event]:
    events = x.events.events if x.events is not None else ()
    return [event for event in events if value_at(event.value, "token") is not None]


def _details(x: Exchange) -> Json:
    if x.events is not None:
        return value_at(x.events.events[-1].value, "details") if x.events.events else None
    return value_at(_answer(x), "details")


def _answer(x: Exchange) -> Json:
    # the path `/` wraps the answer in a list
    return x.response_json[0] if isinstance(x.response_json, list) and x.response_json else x.response_json


def _generated_text(x: Exchange) -> str:
    last = x.events.events[-1].value if x.events is not None and x.events.events else _answer(x)
    return text(value_at(last, "generated_text"))


@check(MUST, spec="tgi#details", when=shows_details)
def tokens_are_all_told(x: Exchange) -> Iterator[Finding]:
    """The details list every generated token, special ones too, in order; the ordinary ones spell the generated text.

    Their number is the reported count. Clients that parse Harmony themselves use these ids: without the markers,
    reasoning and answer run into each other.
    """
    entries = _tokens(x)
    count = integer(value_at(_details(x), "generated_tokens"))
    numbers = (integer(value_at(entry, "id")) for entry in entries)
    ids = [token for token in numbers if token is not None and tokens.is_known(token)]
    if count != len(entries) or len(ids) != len(entries):
        message = "the number of listed tokens differs from the reported count"
        actual = RedactableText("{} tokens", len(ids))
        yield mismatch(message, "/details/tokens", RedactableText("{} tokens, each with its id", count), actual)
        return
    marks = zip(entries, ids, strict=True)
    wrong = next((entry for entry, token in marks if value_at(entry, "special") is not tokens.is_special(token)), None)
    if wrong is not None:
        message = "a token has the wrong `special` flag"
        expected = "special for the markers, and for nothing else"
        yield mismatch(message, "/details/tokens/special", expected, shorten(dumps(wrong)))
    order = [integer(value_at(event.value, "index")) for event in _token_events(x)]
    if None not in order and order != list(range(1, len(order) + 1)):
        message = "the tokens are out of order"
        yield mismatch(message, "/index", RedactableText("1 to {}, in order", len(order)), shorten(dumps([*order])))
    spelled = decode([one for one in ids if not tokens.is_special(one)])
    is_echoed = value_at(x.request.json, "parameters", "return_full_text") is True
    prompt = text(value_at(x.request.json, "inputs")) if is_echoed else ""
    if _generated_text(x) not in (prompt + spelled, prompt + decode(ids)):
        message = "the tokens do not spell the generated text"
        yield mismatch(message, "/generated_text", shorten(prompt + spelled), shorten(_generated_text(x)))


@check(MUST, spec="tgi#finish-reason", when=shows_how_it_ended)
def finish_reason_tells_why(x: Exchange) -> Iterator[Finding]:
    """finish_reason is `eos_token` after a stop token, `length` at the limit, and `stop_sequence` after a stop string.

    Clients that take a cut answer for a complete one run half a call. The last event of a stream has the complete text;
    a stream without it was cut off.
    """
    if x.events is not None and not _has_text(x):
        message = "the stream ends before the event with its text"
        actual = shorten(dumps(x.events.events[-1].value))
        yield mismatch(message, f"event {len(x.events.events)}", "generated_text", actual)
        return
    reason = value_at(_details(x), "finish_reason")
    ids = [integer(value_at(entry, "id")) for entry in _tokens(x)]
    limit = integer(value_at(x.request.json, "parameters", "max_new_tokens"))
    stops = [text(stop) for stop in items(value_at(x.request.json, "parameters", "stop"))]
    valid = set[str]()
    if any(stop and stop in _generated_text(x) for stop in stops):
        valid.add("stop_sequence")
    if ids[-1] in GENERATION_END_TOKENS:
        valid.add("eos_token")
    elif limit is not None and len(ids) >= limit:
        valid.add("length")
    elif not valid:
        valid |= {"length", "eos_token"}  # a limit of the server, or a stop token of other models
    if not isinstance(reason, str) or reason not in valid:
        last = format_ids([one for one in ids[-1:] if one is not None])
        message = "finish_reason does not match the end of the output"
        actual = RedactableText("{} after {}", shorten(dumps(reason)), last)
        yield mismatch(message, "/details/finish_reason", quote(" or ".join(sorted(valid))), actual)


@only_on(TGI.name, TGI_GENERATE.name)
@evidence
def has_count_headers(x: Exchange) -> bool:
    """answers of TGI with token counts in headers and body; with `best_of` the headers count the first choice"""
    headers = x.response.headers if x.response is not None else NO_HEADERS
    is_tgi = x.api in (TGI.name, TGI_GENERATE.name) and on.is_complete_answer.holds(x) and not x.choice
    return is_tgi and any(name in headers and count is not None for name, count in _counts(x).items())


def _counts(x: Exchange) -> dict[str, int | None]:
    """Return the counts of the body by the name of the corresponding header."""
    usage = x.turn.usage if x.turn is not None else None
    prompt = len(x.prompt.ids) if x.prompt.ids is not None else x.prompt.count
    generated = usage.completion_tokens if usage is not None else None
    if x.api == TGI_GENERATE.name:
        generated = integer(value_at(_details(x), "generated_tokens"))
    return {"x-prompt-tokens": prompt, "x-generated-tokens": generated}


@check(MUST, spec="tgi#headers", when=has_count_headers)
def headers_agree_with_the_body(x: Exchange) -> Iterator[Finding]:
    """The headers `x-prompt-tokens` and `x-generated-tokens` have the same counts as the body.

    A gateway bills by the headers, since it does not have to read the body. If they differ, one of the two bills is wrong.
    """
    headers = x.response.headers if x.response is not None else NO_HEADERS
    for name, count in _counts(x).items():
        header = headers.get(name)
        if header is not None and count is not None and header.strip() != str(count):
            message = "a header has another token count than the body"
            yield mismatch(message, f"header {name}", quote(count), shorten(header))


def _pairs(series: Series) -> Iterator[tuple[Exchange, list[int]]]:
    """Yield answers of TGI's chat, each with the ids that /chat_tokenize returns for the same messages."""
    tokenized: list[tuple[Exchange, list[int]]] = []
    for x in series.exchanges.values():
        if x.request.path.endswith(CHAT_TOKENIZE):
            entries = items(value_at(x.response_json, "tokenize_response"))
            tokenized.append((x, [token for entry in entries if (token := integer(value_at(entry, "id"))) is not None]))
    for x in series.exchanges.values():
        for other, ids in tokenized:
            pairs = (
                (value_at(x.chat_request, name), value_at(other.chat_request, name)) for name in ("messages", "tools")
            )
            is_chat = x.api == TGI.name and x is not other and x.turn is not None
            if ids and is_chat and all(dumps(one) == dumps(two) for one, two in pairs):
                yield x, ids


@series_only
@condition
def has_chat_and_tokens(series: Series) -> bool:
    """a chat with TGI and the answer of /chat_tokenize for the same request"""
    return any(True for _ in _pairs(series))


@comparison(MUST, spec="tgi#chat-tokenize", when=has_chat_and_tokens)
def chat_tokenize_shows_the_prompt(series: Series) -> Iterator[Finding]:
    """`/chat_tokenize` returns the prompt of the same chat: the same count and the same ids.

    It is the only access to TGI's prompts; a different prompt proves nothing.
    """
    for x, ids in _pairs(series):
        prompt, count = x.prompt.ids, prompt_count(x)
        if count not in (None, len(ids)):
            message = "/chat_tokenize returns another number of tokens than the chat counts"
            both = RedactableText("answer: {}, {}: {}", count, CHAT_TOKENIZE, len(ids))
            finding = mismatch(message, "/tokenize_response", "the same in both", both, exchange=x.id)
            yield ruled(finding, COUNTS_OF_ENDPOINTS)
        elif prompt is not None and list(prompt) != ids:
            message = "/chat_tokenize returns other tokens than the prompt of the chat"
            expected = shorten(format_ids(prompt))
            yield mismatch(message, "/tokenize_response", expected, shorten(format_ids(ids)), exchange=x.id)
