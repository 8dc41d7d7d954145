"""Family `choices`: the number of choices, their log probabilities, the effect of a seed, and the ids of answers."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import LiteralString

from harmony_conformance.apis.registry import CHAT_COMPLETIONS, OLLAMA, OLLAMA_GENERATE, RESPONSES
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import AnsweredBy
from harmony_conformance.json_value import Json, canonical_json, dumps, integer, items, members, number, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.redactable_text import RedactableText, quote, shorten


@condition
def asks_for_several_choices(x: Exchange) -> bool:
    """requests for several choices (`n`)"""
    return (integer(value_at(x.chat_request, "n")) or 1) > 1 and x.choice == 0


@check(MUST, spec="chat#n", when=(on.is_completion, on.is_complete_answer, asks_for_several_choices))
def as_many_as_asked(x: Exchange) -> Iterator[Finding]:
    """A request for several choices gets that many, numbered from 0, or is refused.

    A server that silently returns one breaks clients that take a vote, or the best of several (defects M15, O12). Every other check judges all choices of
    an answer, each as if it were alone.
    """
    prompt = value_at(x.request.json, "prompt")
    prompts = items(prompt) if any(integer(one) is None for one in items(prompt)) else [prompt]
    wanted = (integer(value_at(x.chat_request, "n")) or 1) * len(prompts)
    unstreamed = (integer(value_at(choice, "index")) or 0 for choice in items(value_at(x.chat_completion, "choices")))
    indexes = sorted(unstreamed if x.stream is None else {one.choice_index or 0 for one in x.joined_choices})
    if len(indexes) != wanted or indexes != [*range(len(indexes))]:  # `wanted` is the client's and may be huge
        message = RedactableText("{} choices were asked for", wanted)
        actual = RedactableText("indexes {}", ", ".join(map(str, indexes)))
        yield mismatch(message, "/choices", RedactableText("indexes 0 to {}", wanted - 1), actual)


def _logprob_entries(x: Exchange) -> list[Json]:
    """Return the log probability entries of the first choice, joined over all chunks of a stream."""
    if x.stream is None:
        first = members(value_at(x.chat_completion, "choices", 0))
        logprobs = [] if integer(first.get("index")) else [first.get("logprobs")]
    else:
        logprobs = [one.choice.get("logprobs") for one in x.joined_choices if not one.choice_index and not one.position]
    return [entry for value in logprobs if value is not None for entry in items(value_at(value, "content"))]


@evidence
def api_has_logprobs(x: Exchange) -> bool:
    """exchanges on Chat Completions, the Responses API or Ollama's own, whose answers can represent log probabilities"""
    return x.api in (CHAT_COMPLETIONS.name, RESPONSES.name, OLLAMA.name, OLLAMA_GENERATE.name)


@condition
def asks_for_logprobs(x: Exchange) -> bool:
    """requests for log probabilities"""
    return value_at(x.chat_request, "logprobs") is True


@evidence
def was_generated(x: Exchange) -> bool:
    """generated answers: a server that only derenders does not receive any probabilities"""
    return x.answered_by is AnsweredBy.API


@condition
def has_content(x: Exchange) -> bool:
    """answers with text"""
    return x.turn is not None and bool(x.turn.content)


@condition
def has_logprobs(x: Exchange) -> bool:
    """answers with log probabilities"""
    return bool(_logprob_entries(x))


@check(
    SHOULD,
    spec="chat#logprobs",
    when=(on.is_conversation, api_has_logprobs, on.is_complete_answer, was_generated, asks_for_logprobs, has_content),
)
def logprobs_are_returned(x: Exchange) -> Iterator[Finding]:
    """Log probabilities that were requested are returned, in streams too, or the request is refused.

    Otherwise clients that measure certainty silently get none (defect M15).
    """
    if not _logprob_entries(x):
        message = "log probabilities were requested and not returned"
        yield mismatch(message, "/logprobs/content", "an entry for each token, or a refusal", "nothing")


@check(
    MUST,
    spec="chat#logprobs",
    when=(on.is_conversation, api_has_logprobs, on.is_complete_answer, was_generated, has_logprobs, has_content),
)
def logprobs_spell_the_text(x: Exchange) -> Iterator[Finding]:
    """The tokens of the log probabilities, one after the other, are the text of the content.

    Entries that are shifted, lost or doubled give each token the certainty of another. Entries of the whole output, reasoning and markers included, are
    another contract, and a variant as long as they include the content.
    """
    content = (x.turn.content if x.turn is not None else "") or ""
    pieces = [_bytes(entry) for entry in _logprob_entries(x)]
    if None in pieces:
        return
    spelled = b"".join(piece for piece in pieces if piece is not None).decode("utf-8", "replace")
    if _without_space(spelled) == _without_space(content):
        return
    if _covers_more(_without_space(spelled), _without_space(content)):
        yield variant("log probabilities cover more than the content", where="/logprobs/content")
        return
    place = next((place for place, piece in enumerate(pieces) if piece and _LOST_BYTES in piece), None)
    if (
        place is not None
        and "\ufffd" not in content
        and _has_all_characters(content, _of_content(spelled).replace("\ufffd", ""))
    ):
        broken = "an entry has the bytes of U+FFFD in place of those of its token, which is a part of a character"
        actual = RedactableText("{}", " ".join(f"{byte:02x}" for byte in pieces[place] or b""))
        yield mismatch(broken, f"/logprobs/content/{place}/bytes", "the bytes of the token", actual)
        return
    expected, actual = text_difference(content, _of_content(spelled))
    message: LiteralString = "the tokens of the log probabilities do not spell the content"
    output = x.expected_output
    if output is not None and _without_space(spelled) == _without_space("".join(output.user_texts)):
        message = (
            "the log probabilities have the tokens that the model wrote for the user, and the content has another text"
        )
    yield mismatch(message, "/logprobs/content", expected, actual)


_LOST_BYTES = "\ufffd".encode()


def _of_content(spelled: str) -> str:
    """Return what follows the last header in the text of a whole output, up to the next marker; other texts unchanged."""
    return spelled.rpartition("<|message|>")[2].partition("<|")[0] if "<|message|>" in spelled else spelled


def _bytes(entry: Json) -> bytes | None:
    """Return the bytes of a token, or None if they are unknown or the entry gives the number of the token."""
    listed = [integer(byte) for byte in items(value_at(entry, "bytes"))]
    if listed and all(byte is not None and 0 <= byte < 256 for byte in listed):  # noqa: PLR2004 - a byte
        return bytes(byte for byte in listed if byte is not None)
    token = text(value_at(entry, "token"))
    return None if not token or "\ufffd" in token or token.startswith("token_id:") else token.encode("utf-8", "replace")


def _without_space(value: str) -> str:
    """Remove white space: servers join several messages by white space, which has no token."""
    return "".join(value.split())


def _covers_more(spelled: str, content: str) -> bool:
    """Return True if `spelled` contains the content, whole or in pieces between the markers of a whole output."""
    return content in spelled or ("<|message|>" in spelled and _has_all_characters(spelled, content))


def _has_all_characters(text: str, of: str) -> bool:
    """Return True if the characters `of` a text are in another text, in their order."""
    rest = iter(text)
    return all(character in rest for character in of)


@check(
    MUST,
    spec="chat#top-logprobs",
    when=(on.is_conversation, api_has_logprobs, on.is_complete_answer, was_generated, has_logprobs),
)
def logprobs_are_logarithms(x: Exchange) -> Iterator[Finding]:
    """Each entry has its token and a logarithm, which is not above 0, and at most as many likely tokens as requested.

    A server that returns probabilities turns the surest token into the least sure.
    """
    most = integer(value_at(x.chat_request, "top_logprobs"))
    for index, entry in enumerate(_logprob_entries(x)):
        where, likely = f"/logprobs/content/{index}", items(value_at(entry, "top_logprobs"))
        wrong = next((one for one in (entry, *likely) if not _is_logarithm(one)), None)
        if wrong is not None:
            message = "an entry has no valid log probability"
            actual = shorten(dumps({"token": value_at(wrong, "token"), "logprob": value_at(wrong, "logprob")}))
            yield mismatch(message, where, "a token and a number that is not above 0", actual)
            return
        if most is not None and len(likely) > most + 1:
            message = "more likely tokens than requested"
            yield mismatch(message, where + "/top_logprobs", RedactableText("at most {}", most), quote(len(likely)))
            return
        if most is not None and len(likely) > most:
            yield variant("the list of likely tokens also has the token itself", where=where + "/top_logprobs")
            return


_ROUNDING = 1e-3


def _is_logarithm(entry: Json) -> bool:
    value = number(value_at(entry, "logprob"))
    return isinstance(value_at(entry, "token"), str) and value is not None and isfinite(value) and value <= _ROUNDING


@series_only
@evidence
def has_answers_with_ids(series: Series) -> bool:
    """answers with an id to different requests"""
    return len(series.exchanges) > 1 and len({request for _, request in _with_ids(series)}) > 1


@comparison(SHOULD, spec="chat#id", when=has_answers_with_ids)
def answers_have_ids_of_their_own(series: Series) -> Iterator[Finding]:
    """Answers to different requests have different ids.

    A log, a trace or a store that indexes answers by id overwrites one with the other. SHOULD, because a client that takes one answer at a time is not
    affected. The same request may get the same answer again from a cache.
    """
    seen: dict[str, tuple[str, str]] = {}
    for x, request in _with_ids(series):
        name = (x.turn.id if x.turn is not None else None) or ""
        first, before = seen.setdefault(name, (x.id, request))
        if before != request:
            message = "answers to two different requests have the same id"
            actual = RedactableText("{}, as in {}", shorten(name), first)
            yield mismatch(message, "/id", "a unique id", actual, exchange=x.id)


_DELIVERY = frozenset({"stream", "stream_options"})


def _with_ids(series: Series) -> Iterator[tuple[Exchange, str]]:
    """Yield each answer of the API itself that has an id, with its request without the members that choose streaming."""
    for x in series.exchanges.values():
        is_of_api = on.is_conversation.holds(x) and not x.from_log and x.answered_by is AnsweredBy.API
        if is_of_api and x.turn is not None and x.turn.id:
            request = {name: value for name, value in members(x.chat_request).items() if name not in _DELIVERY}
            yield x, canonical_json(request)


SEEDED = ("first", "second", "third")
"""Steps that send the same request with the same seed."""


@series_only
@condition
def has_seeded_requests(series: Series) -> bool:
    """the same request with the same seed, answered three times"""
    return len(_seeded_exchanges(series)) == len(SEEDED)


def _seeded_exchanges(series: Series) -> list[Exchange]:
    sent = [series.exchanges[step] for step in SEEDED if step in series.exchanges]
    same = {dumps(x.chat_request) for x in sent}
    is_seeded = all(integer(value_at(x.chat_request, "seed")) is not None and x.script is None for x in sent)
    return [x for x in sent if on.is_complete_answer.holds(x)] if len(same) == 1 and is_seeded else []


@comparison(SHOULD, spec="chat#seed", when=has_seeded_requests)
def same_seed_same_answer(series: Series) -> Iterator[Finding]:
    """The same request with the same seed has the same answer.

    SHOULD, because the API promises only best effort, and batching changes the last digits of a sum. Only three different answers are a failure. One
    different answer is a variant, as is another `system_fingerprint`. Works with any weights, the more random the better.
    """
    seeded = _seeded_exchanges(series)
    answers = {_content(x) for x in seeded}
    if len(answers) == 1:
        return
    fingerprints = {dumps(value_at(x.chat_completion, "system_fingerprint")) for x in seeded}
    if len(answers) < len(SEEDED) or len(fingerprints) > 1:
        yield variant("the same seed does not always give the same answer", where="/seed")
        return
    message = "three requests with the same seed have three answers"
    actual = RedactableText("{} answers", len(answers))
    yield mismatch(message, "/seed", "the same answer", actual, exchange=seeded[1].id)


def _content(x: Exchange) -> tuple[str | None, ...]:
    """Return reasoning, content and calls of an answer, without the ids of calls: these are new each time."""
    if x.turn is None:
        return ()
    calls = (part for call in x.turn.tool_calls for part in (call.name, call.arguments))
    return (x.turn.reasoning, x.turn.content, *calls)
