"""Requirements on the chunks of a stream as a whole: one id, one role, one finish_reason, one usage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from harmony_conformance.apis.stream_choices import ChunkChoice
from harmony_conformance.checks.streaming.views import has_output, in_pieces, is_content_filter_event, is_error
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, mismatch, variant
from harmony_conformance.redactable_text import RedactableText, quote, shorten


@check(MUST, spec="chat#chunk", when=(on.is_completion, on.has_full_api_stream, on.was_answered))
def one_identity(x: Exchange) -> Iterator[Finding]:
    """All chunks of a stream have the same id, model and time of creation; a changing fingerprint is a variant.

    A server that writes the time of each chunk changes `created` only at the turn of a second. A change of one second therefore counts only in streams
    that last longer than a second. There every such server shows it.
    """
    few = _filled_chunks(x.joined_chunks)
    for member in ("id", "model", "created"):
        if all(chunk.get(member) == few[0].get(member) for chunk in few):
            continue
        values = [chunk.get(member) for chunk in _filled_chunks(x.chunks)]
        changed = next(place for place, value in enumerate(values) if value != values[0])
        if not (member == "created" and _may_depend_on_the_clock(x, values)):
            message = f"{member} changes within the stream"
            yield mismatch(message, f"chunk {changed}/{member}", "the same in all chunks", "another one")
    fingerprints = {text(value_at(chunk, "system_fingerprint")) for chunk in x.joined_chunks} - {""}
    if len(fingerprints) > 1:
        yield variant("the fingerprint changes within the stream", where="system_fingerprint")


def _filled_chunks(chunks: Sequence[Json]) -> list[JsonObject]:
    """Return the chunks with choices or usage, without the results of content filters."""
    return [
        chunk
        for chunk in map(members, chunks)
        if (chunk.get("choices") and items(chunk["choices"])) or chunk.get("usage") is not None
        if chunk.get("object") or not is_content_filter_event(chunk)
    ]


def _may_depend_on_the_clock(x: Exchange, times: Sequence[Json]) -> bool:
    """Return True if the stream is so short that the same server may show the same time in all of its chunks."""
    arrivals = [event.arrival_time for event in x.stream.events] if x.stream is not None else []
    seconds = [time for time in map(integer, times) if time is not None]
    duration = arrivals[-1] - arrivals[0] if arrivals else 0.0
    return len(seconds) == len(times) and duration < _LONG_STREAM and max(seconds) - min(seconds) <= duration + 1


_LONG_STREAM = 1.25  # seconds: one, and a quarter for chunks that arrive late


@check(MUST, spec="chat#chunk-choices", when=(on.is_completion, on.has_full_stream))
def choices_are_numbered(x: Exchange) -> Iterator[Finding]:
    """Each choice of a chunk has its index; a chunk with neither choices nor usage is a variant.

    Clients join deltas by the index of their choice, and read the first choice of a chunk without a length check.
    """
    if unnumbered := [*in_pieces(x, _unnumbered)]:
        yield from unnumbered
        return
    empty = [
        chunk for chunk in x.joined_chunks if members(chunk).get("choices") == [] and value_at(chunk, "usage") is None
    ]
    if empty and not any(map(is_error, empty)):
        yield variant("a chunk has neither choices nor usage", where="choices")


def _unnumbered(pieces: Sequence[ChunkChoice]) -> Iterator[Finding]:
    for piece in pieces:
        if piece.choice_index is None or piece.choice_index < 0:
            message = "a choice has no index"
            actual = shorten(dumps(piece.choice.get("index")))
            where = f"chunk {piece.chunk_index}/choices/{piece.position}/index"
            yield mismatch(message, where, "a whole number", actual)
            return


@check(MUST, spec="chat#delta-role", when=(on.is_chat, on.has_full_stream, on.is_complete_answer))
def role_comes_first(x: Exchange) -> Iterator[Finding]:
    """The first delta has the role `assistant`, and no delta has another role; repeating the role is a variant."""
    roles = [members(piece.delta).get("role") for piece in x.joined_choices if piece.is_first]
    if not roles:
        return
    if roles[0] != "assistant":
        message = "the first delta does not have the role assistant"
        actual = "no role" if roles[0] is None else quote(roles[0])
        yield mismatch(message, "chunk 0/choices/0/delta/role", "assistant", actual)
    if any(role not in (None, "assistant") for role in roles):
        message = "a delta has another role"
        actual = quote(next(role for role in roles if role not in (None, "assistant")))
        yield mismatch(message, "choices/0/delta/role", "assistant", actual)
    elif sum(role is not None for role in roles) > 1:
        yield variant("the role is repeated in later deltas", where="choices/0/delta/role")


FINISH_REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")


@check(MUST, spec="chat#finish-reason", when=(on.is_completion, on.has_full_stream, on.is_complete_answer))
def one_finish_reason(x: Exchange) -> Iterator[Finding]:
    """Each choice has exactly one finish_reason, a string, and no text or call after it; a value unknown to the API is a variant."""
    yield from in_pieces(x, _finish_problems)


def _finish_problems(pieces: Sequence[ChunkChoice]) -> Iterator[Finding]:
    chosen: defaultdict[int, list[JsonObject]] = defaultdict(list)
    for piece in pieces:
        chosen[piece.choice_index or 0].append(piece.choice)
    for index, choices in sorted(chosen.items()):
        reasons = [reason for choice in choices if (reason := choice.get("finish_reason")) is not None]
        if len(reasons) != 1:
            number = RedactableText("the stream has {} finish reasons", len(reasons))
            actual = quote(", ".join(map(str, reasons))) or "none"
            yield mismatch(number, f"choices/{index}/finish_reason", "1", actual)
            continue
        (reason,) = reasons
        if reason not in FINISH_REASONS:
            if isinstance(reason, str) and reason:
                yield variant("the finish_reason is unknown to the API", where=f"choices/{index}", actual=quote(reason))
            else:
                message = "the finish_reason is not a string"
                expected = ", ".join(FINISH_REASONS)
                yield mismatch(message, f"choices/{index}/finish_reason", expected, shorten(dumps(reason)))
        position = next(i for i, choice in enumerate(choices) if choice.get("finish_reason") is not None)
        later = [delta for choice in choices[position + 1 :] if has_output(delta := choice.get("delta"))]
        if later:
            message = "text or calls follow the finish_reason"
            yield mismatch(message, f"choices/{index}/delta", "no more deltas", shorten(str(later[0])))


@check(MUST, spec="chat#stream-usage", when=(on.is_completion, on.has_full_api_stream, on.should_have_usage))
def usage_comes_last(x: Exchange) -> Iterator[Finding]:
    """A stream with `include_usage` ends with one chunk that has usage and an empty list of choices."""
    chunks = [chunk for chunk in x.chunks if isinstance(value_at(chunk, "usage"), dict)]
    if not chunks:
        yield mismatch("usage was requested and is missing in the stream", "usage", "a last chunk with usage", "none")
    elif items(value_at(chunks[-1], "choices")):
        yield variant("the chunk with usage has choices too", where="usage")
    elif len(chunks) > 1 and not any(items(value_at(chunk, "choices")) for chunk in chunks[:-1]):
        yield mismatch("several chunks have usage", "usage", "one chunk", RedactableText("{} chunks", len(chunks)))
    elif chunks[-1] is not x.chunks[-1]:
        yield mismatch("chunks follow the one with usage", "usage", "the last chunk before [DONE]", "an earlier one")
