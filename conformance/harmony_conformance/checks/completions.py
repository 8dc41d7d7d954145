"""Family `completions`: a prompt that the client itself wrote in Harmony is continued unchanged, and the output is returned as written.

For every API that takes such a prompt: Completions, generate of TGI and of SGLang, Ollama's generate with `raw`, llama.cpp's completion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from typing import LiteralString

from harmony_conformance.apis.completions import KIND
from harmony_conformance.apis.registry import COMPLETIONS, TGI_GENERATE
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES
from harmony_conformance.evidence.series_pairs import prompt_count
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, only_on, series_only
from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.redactable_text import RedactableText, shorten
from harmony_ref import decode, encode, encode_with_special_tokens, tokens


@condition
def continues_a_prompt(x: Exchange) -> bool:
    """answers of an API that continues a raw prompt"""
    return x.api_adapter.is_raw and x.validity not in REFUSABLE_VALIDITIES and on.was_answered.holds(x)


_PROMPTS = ("prompt", "inputs", "text", "input_ids")
"""The members of a request that may hold the prompt."""


@condition
def has_one_prompt(x: Exchange) -> bool:
    """requests with one prompt and no limit on its length"""
    return _prompt(x) is not None and value_at(x.request.json, "parameters", "truncate") is None


def _prompt(x: Exchange) -> str | tuple[int, ...] | None:
    """Return the prompt of the request, a text or ids. None if it is neither, or if there are several."""
    sent = next((value for name in _PROMPTS if (value := value_at(x.request.json, name)) is not None), None)
    if isinstance(sent, str):
        return sent or None
    ids = tuple(token for item in items(sent) if (token := integer(item)) is not None and tokens.is_known(token))
    return ids if ids and len(ids) == len(items(sent)) else None


@evidence
def prompt_is_counted(x: Exchange) -> bool:
    """answers that show or count the tokens of the prompt"""
    return x.prompt.ids is not None or x.prompt.count is not None


@check(MUST, spec="completions#prompt", when=(continues_a_prompt, has_one_prompt, prompt_is_counted))
def prompt_is_continued_as_it_stands(x: Exchange) -> Iterator[Finding]:
    """The model is fed the prompt and nothing else: the ids that were sent, or those of the text with its markers as special tokens.

    A template around it turns a whole conversation into one user message. Markers that are read as ordinary text are a variant: a Harmony prompt then has
    to be sent as ids.
    """
    sent, fed = _prompt(x), x.prompt.ids
    if sent is None:
        return
    wanted = encode_with_special_tokens(sent) if isinstance(sent, str) else list(sent)
    if _is_fed(x, wanted):
        return
    if isinstance(sent, str) and _is_fed(x, encode(sent)):
        yield variant("the markers of a text prompt are read as ordinary text", where="/prompt")
        return
    expected = shorten(format_ids(wanted)) if fed is not None else RedactableText("{} tokens", len(wanted))
    actual = shorten(format_ids(fed)) if fed is not None else RedactableText("{} tokens", x.prompt.count)
    yield mismatch("the prompt that was fed is not the one that was sent", "/prompt", expected, actual)


def _is_fed(x: Exchange, ids: Sequence[int]) -> bool:
    if x.prompt.ids is not None and list(x.prompt.ids) != list(ids):
        return False
    return x.prompt.count in (None, len(ids))


@evidence
def text_is_known(x: Exchange) -> bool:
    """answers whose emitted tokens are known, and which no stop string ended"""
    return x.output.ids is not None and not x.has_stop_string


@check(MUST, spec="completions#text", when=(continues_a_prompt, on.is_complete_answer, text_is_known))
def text_is_what_was_written(x: Exchange) -> Iterator[Finding]:
    """The text is what the model wrote, with blanks at its ends; special tokens are either all left out or all spelled.

    Clients that parse it themselves need every character: text that is trimmed, or taken for reasoning, is lost. The token that ended it may be left out.
    """
    ids, content = x.output.ids or (), x.turn.content or "" if x.turn is not None else ""
    ended = ids[:-1] if ids and ids[-1] in tokens.STOP_TOKENS | {tokens.ENDOFTEXT} else ids
    without = decode([one for one in ids if not tokens.is_special(one)])
    wants_markers = value_at(x.chat_request, "skip_special_tokens") is False
    shown = (decode(ids), decode(ended)) if wants_markers else (without, decode(ids), decode(ended))
    echoed = _prompt(x) if _echoes(x) else ""
    before = echoed if isinstance(echoed, str) else decode(list(echoed or ()))
    bare = decode([one for one in echoed or () if isinstance(one, int) and not tokens.is_special(one)])
    if any(content.rstrip("\ufffd") == (start + form).rstrip("\ufffd") for start in {before, bare} for form in shown):
        return
    expected, actual = text_difference(before + shown[0], content)
    yield mismatch("the text is not what the model wrote", "/text", expected, actual)


def _echoes(x: Exchange) -> bool:
    sent = x.request.json
    return value_at(sent, "echo") is True or value_at(sent, "parameters", "return_full_text") is True


@condition
def wants_an_echo(x: Exchange) -> bool:
    """requests whose answer is to begin with the prompt, which is a text"""
    return _echoes(x) and isinstance(_prompt(x), str)


@check(MUST, spec="completions#echo", when=(continues_a_prompt, on.is_complete_answer, wants_an_echo))
def echo_repeats_the_prompt(x: Exchange) -> Iterator[Finding]:
    """With `echo` the text begins with the prompt.

    Clients use it to measure the log probabilities of a known text: without the echo they measure another text.
    """
    sent, content = _prompt(x), (x.turn.content or "") if x.turn is not None else ""
    if not isinstance(sent, str):
        return
    if x.api == TGI_GENERATE.name and x.events is not None:  # a stream of TGI has the echo in its last event only
        content = next((text(value_at(event.value, "generated_text")) for event in reversed(x.events.events)), "")
    bare = decode([one for one in encode_with_special_tokens(sent) if not tokens.is_special(one)])
    if not content.startswith((sent, bare)):
        yield mismatch("the text does not begin with the prompt", "/text", shorten(sent), shorten(content))


@only_on(COMPLETIONS.name)
@condition
def is_completions(x: Exchange) -> bool:
    """answers of Completions"""
    return x.api == COMPLETIONS.name


def _are_numbered(choices: Json) -> bool:
    indexes = [integer(value_at(choice, "index")) for choice in items(choices)]
    return isinstance(choices, list) and None not in indexes and len(set(indexes)) == len(indexes)


_MEMBERS: tuple[tuple[LiteralString, Callable[[Json], bool], LiteralString], ...] = (
    ("id", lambda value: isinstance(value, str) and bool(value), "a text"),
    ("object", lambda value: value == KIND, KIND),
    ("created", lambda value: integer(value) is not None, "a time in seconds"),
    ("model", lambda value: isinstance(value, str) and bool(value), "a text"),
    ("choices", _are_numbered, "a list, and each choice with a unique index"),
)


@check(SHOULD, spec="completions#object", when=(is_completions, continues_a_prompt, on.is_complete_answer))
def answer_has_its_members(x: Exchange) -> Iterator[Finding]:
    """An answer of Completions, and each chunk of one, has id, object, time and model, and its choices their index.

    Clients with typed objects skip missing members, or reject the whole answer.
    """
    events = x.events.events if x.events is not None else ()
    answers = [event.value for event in events if not event.is_done] if x.events is not None else [x.response_json]
    for place, answer in enumerate(answers):
        if value_at(answer, "error") is not None:
            continue
        where = f"chunk {place}" if x.events is not None else ""
        for name, is_right, expected in _MEMBERS:
            value = value_at(answer, name)
            if not is_right(value):
                shown = [value_at(one, "index") for one in value] if isinstance(value, list) else value
                message = f"`{name}` is missing or has the wrong type"
                actual = shorten(dumps(shown)) if shown is not None else "nothing"
                yield mismatch(message, f"{where}/{name}", expected, actual)
                return


def _logprobs(x: Exchange) -> dict[str, list[Json]]:
    """Return the lists of the log probabilities of the first choice, joined over a stream."""
    answers = [event.value for event in x.events.events] if x.events is not None else [x.response_json]
    choices = chain.from_iterable(items(value_at(value, "choices")) for value in answers)
    first = [choice for choice in choices if integer(value_at(choice, "index")) in (0, None)]
    return {
        name: [entry for choice in first for entry in items(value_at(choice, "logprobs", name))]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    }


@condition
def has_logprobs(x: Exchange) -> bool:
    """answers of Completions to requests for log probabilities"""
    return x.api == COMPLETIONS.name and integer(value_at(x.request.json, "logprobs")) is not None


@check(MUST, spec="completions#logprobs", when=(continues_a_prompt, on.is_complete_answer, has_logprobs))
def logprobs_align(x: Exchange) -> Iterator[Finding]:
    """Each emitted token, and each token of an echoed prompt, has an entry, a log probability and an offset in the text.

    Clients read the lists in parallel: after a missing entry, every value belongs to another token. The tokens spell the text, without special ones.
    """
    lists = _logprobs(x)
    count = len(lists["tokens"])
    ids = x.output.ids
    prompt = x.prompt.count or 0 if _echoes(x) else 0
    emitted = len(ids) + prompt if ids is not None else None
    wrong = next((name for name in ("token_logprobs", "text_offset") if len(lists[name]) != count), None)
    if wrong is not None or not count:
        message = "the lists of the log probabilities differ in length, or are empty"
        expected = RedactableText("{} entries", count) if wrong else "an entry for each token"
        actual = RedactableText("{} entries", len(lists[wrong or "tokens"]))
        yield mismatch(message, f"/logprobs/{wrong or 'tokens'}", expected, actual)
    elif emitted is not None and count not in (emitted, emitted - 1):
        message = "the log probabilities do not cover every token"
        expected = RedactableText("{} tokens", emitted)
        yield mismatch(message, "/logprobs/tokens", expected, RedactableText("{} tokens", count))
    elif x.turn is not None and not x.has_stop_string and not _spell(lists["tokens"], _unmarked(x.turn.content or "")):
        message = "the tokens do not spell the text"
        actual = shorten("".join(map(text, lists["tokens"])))
        yield mismatch(message, "/logprobs/tokens", shorten(x.turn.content or ""), actual)
    values = lists["token_logprobs"]
    above = next((value for value in values if isinstance(value, int | float) and value > _ROUNDING), None)
    if above is not None:
        message = "a log probability is above 0"
        yield mismatch(message, "/logprobs/token_logprobs", "a number that is not above 0", shorten(dumps(above)))
    offsets = [integer(place) or 0 for place in lists["text_offset"]]
    if offsets != sorted(offsets):
        message = "the offsets of the tokens in the text decrease"
        yield mismatch(message, "/logprobs/text_offset", "each at or after the previous one", shorten(str(offsets)))


_ROUNDING = 1e-3

_PIECES = ("\ufffd", "bytes:", "token_id:")
"""Marks of an entry whose token is a piece of a character, and not text by itself."""


def _spell(entries: list[Json], content: str) -> bool:
    """Return True if the tokens, joined and without special ones, are the text. A piece of a character matches any character."""
    end = gap = 0
    for is_piece, run in groupby(map(text, entries), key=lambda entry: any(mark in entry for mark in _PIECES)):
        if is_piece:
            gap += len(list(run))
            continue
        spelled = _unmarked("".join(run))
        start = content.find(spelled, end, end + gap + len(spelled))
        if start < 0:
            return False
        end, gap = start + len(spelled), 0 if spelled else gap
    return len(content) - end <= gap


_MARKERS = re.compile("|".join(map(re.escape, tokens.NAMED_SPECIALS.values())))


def _unmarked(content: str) -> str:
    return _MARKERS.sub("", content)


def _same_prompt(series: Series) -> Iterator[tuple[Exchange, Exchange]]:
    """Yield pairs of answers with the same script: one to a text prompt, one to the ids of the same prompt."""
    answers = [x for x in series.exchanges.values() if continues_a_prompt.holds(x) and x.events is None]
    for one in answers:
        written = _prompt(one)
        if not isinstance(written, str):
            continue
        for other in answers:
            sent = _prompt(other)
            is_same = isinstance(sent, tuple) and list(sent) == encode_with_special_tokens(written)
            if is_same and one.script == other.script and one.script is not None and _settings(one) == _settings(other):
                yield one, other


def _settings(x: Exchange) -> JsonObject:
    return {name: value for name, value in members(x.request.json).items() if name not in _PROMPTS}


@series_only
@evidence
def has_ids_and_text(series: Series) -> bool:
    """the same prompt sent as a text and as ids, answered by the same script"""
    return any(True for _ in _same_prompt(series))


@comparison(MUST, spec="completions#prompt", when=has_ids_and_text)
def ids_and_text_are_one_prompt(series: Series) -> Iterator[Finding]:
    """A prompt of ids has the same answer as its text, and costs as many tokens.

    Ids that a server converts to text lose their markers, or get a token at the beginning.
    """
    for written, sent in _same_prompt(series):
        texts = [x.turn.content if x.turn is not None else None for x in (written, sent)]
        counts = [prompt_count(written), prompt_count(sent)]
        if texts[0] != texts[1]:
            message = "the prompt of ids has another answer than its text"
            both = RedactableText("text: {}, ids: {}", shorten(texts[0] or ""), shorten(texts[1] or ""))
            yield mismatch(message, "/text", "the same for both", both, exchange=sent.id)
        if None not in counts and counts[0] != counts[1]:
            message = "the prompt of ids costs another number of tokens than its text"
            both = RedactableText("text: {}, ids: {}", *counts)
            yield mismatch(message, "/usage/prompt_tokens", "the same for both", both, exchange=sent.id)
