"""What a completion means: the messages a model emitted, sorted by where each of them has to arrive in a chat answer.

Two independent sources: a row written by hand beside a scripted completion, or the token ids that the server itself returned, where they are
well-formed Harmony (then the reference reads them and there is nothing to argue about). A malformed completion without a row means nothing here; a
row for one says what must arrive, what may, and what must never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, at, items, members, text
from harmony_ref import HarmonyError, Role, decode, parse, text_of, tokens

FUNCTIONS = "functions."
_ANALYSIS = 35644  # the word `analysis` is one token
_HEADER_WORDS = 3  # role and channel, two words that take three tokens at most
CALLS_END_A_TURN = frozenset({tokens.RETURN, tokens.CALL})
ENDINGS = CALLS_END_A_TURN | {tokens.ENDOFTEXT}
"""The tokens that end generation: those of the format, and the vocabulary's own."""


@dataclass(frozen=True, kw_only=True)
class FunctionCall:
    """A function call as the model wrote it: the name without its namespace, the arguments as text."""

    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class ExpectedOutput:
    """Texts in the order they were emitted. `finish` is the finish reason that goes with them, None where several are right."""

    reasoning: tuple[str, ...] = ()
    preambles: tuple[str, ...] = ()
    finals: tuple[str, ...] = ()
    calls: tuple[FunctionCall, ...] = ()
    finish: str | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """What was written for the user's eyes."""
        return (*self.preambles, *self.finals)


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What has to become of one scripted completion, written by hand.

    Attributes:
        must: what has to arrive, each part in its place.
        anywhere: texts that have to arrive as content or as reasoning: broken output has no place of its own.
        may_call: calls that may be made of it, or not.
        never: texts that must stand in no field of the answer.
        finish: the finish reasons that go with it; any, where none is named.
        is_whole: whether `must` is all there is, as of a well-formed completion: then nothing else may arrive.
    """

    must: ExpectedOutput
    anywhere: tuple[str, ...] = ()
    may_call: tuple[FunctionCall, ...] = ()
    never: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    is_whole: bool = True


def read_row(row: Json) -> Expectation:
    """A hand-written row.

    A whole one has members `reasoning`, `preambles`, `finals` (arrays of texts), `calls` ({name, arguments}) and `finish`. One for broken output has
    these in a member `must`, with the texts of `anywhere`; and beside it `may` (with `calls`), `never` (an array of texts) and `finish`.
    """
    finish = at(row, "finish")
    must = at(row, "must") if "must" in members(row) else row
    return Expectation(
        must=ExpectedOutput(
            reasoning=_texts(at(must, "reasoning")),
            preambles=_texts(at(must, "preambles")),
            finals=_texts(at(must, "finals")),
            calls=_calls(at(must, "calls")),
        ),
        anywhere=_texts(at(must, "anywhere")),
        may_call=_calls(at(row, "may", "calls")),
        never=_texts(at(row, "never")),
        finish=(finish,) if isinstance(finish, str) else _texts(finish),
        is_whole=not {"may", "never"} & set(members(row)),
    )


def write_row(row: Expectation) -> Json:
    """The row that `read_row` reads."""
    must = _written(row.must)
    if row.anywhere:
        must["anywhere"] = list(row.anywhere)
    finish: dict[str, Json] = (
        {"finish": row.finish[0] if len(row.finish) == 1 else list(row.finish)} if row.finish else {}
    )
    if row.is_whole:
        return {**must, **finish}
    return {"must": must, "may": {"calls": _listed(row.may_call)}, "never": list(row.never), **finish}


def _written(meaning: ExpectedOutput) -> dict[str, Json]:
    texts = (("reasoning", meaning.reasoning), ("preambles", meaning.preambles), ("finals", meaning.finals))
    row: dict[str, Json] = {name: list(told) for name, told in texts if told}
    if meaning.calls:
        row["calls"] = _listed(meaning.calls)
    return row


def _calls(value: Json) -> tuple[FunctionCall, ...]:
    return tuple(
        FunctionCall(name=text(at(call, "name")), arguments=text(at(call, "arguments"))) for call in items(value)
    )


def _listed(calls: Sequence[FunctionCall]) -> list[Json]:
    return [{"name": call.name, "arguments": call.arguments} for call in calls]


def cut_at_stop(ids: Sequence[int]) -> tuple[int, ...]:
    """Return the ids up to and including the first `<|return|>` or `<|call|>`, as an engine emits them."""
    stop = next((place for place, token in enumerate(ids, 1) if token in CALLS_END_A_TURN), len(ids))
    return tuple(ids[:stop])


def ends_a_turn(ids: Sequence[int]) -> bool:
    """Return True if the last id is `<|return|>` or `<|call|>`."""
    return len(ids) > 0 and ids[-1] in CALLS_END_A_TURN


def reconcile(
    script: tuple[int, ...],
    returned: tuple[int, ...] | None,
    count: int | None,
    limit: int | None,
    *,
    ignores_eos: bool,
) -> tuple[int, ...]:
    """Return the ids that were emitted for a script: those returned, unless script and count prove that some are missing or duplicated.

    Args:
        script: The forced ids.
        returned: The ids in the response, or None.
        count: The number of completion tokens in the response's usage, or None.
        limit: The largest number of output tokens that the request allows, or None.
        ignores_eos: True if generation continues after stop tokens.
    """
    cut = (script if ignores_eos else cut_at_stop(script))[:limit]
    is_open = bool(cut) and cut[-1] not in ENDINGS and not ignores_eos
    # an engine adds this token to a script without a stop token
    ended = (*cut, tokens.ENDOFTEXT) if is_open and count == len(cut) + 1 else cut
    if returned is None or (count == len(cut) and returned != cut):
        return ended
    shorter = min(len(returned), len(script))
    if returned[:shorter] == script[:shorter]:
        return returned
    if ended != cut and returned[-1:] == ended[-1:]:
        return ended  # a stream with ids per event, some of them missing (vLLM 0.11.0)
    # the server may have stopped before the end of the script: the count shows where
    return cut[: max(count or 0, 0) or None]


def read_ids(ids: Sequence[int]) -> ExpectedOutput | None:
    """What well-formed Harmony ids mean; None where they are malformed, name a channel or a recipient outside the format, or hold a special token in a text.

    A function's name that is empty or has white space in it, of whatever alphabet, is a header gone wrong: readers part it in several ways.
    """
    ids = strip_endoftext(ids)
    try:
        messages = parse(ids, role=Role.ASSISTANT)
    except HarmonyError:
        return None
    sorted_texts: dict[str, list[str]] = {"analysis": [], "commentary": [], "final": []}
    calls: list[FunctionCall] = []
    for message in messages:
        body = text_of(message)
        channel, recipient = message.channel, message.recipient
        if (
            channel not in sorted_texts
            or message.author.role is not Role.ASSISTANT
            or _has_special(message.content_type)
        ):
            return None
        if recipient is not None and _NAMED.fullmatch(recipient) and channel != "final" and "<|" not in recipient:
            calls.append(FunctionCall(name=recipient.removeprefix(FUNCTIONS), arguments=body))
        elif recipient is None or (channel == "final" and recipient in _JSON):
            sorted_texts[channel].append(body)
        else:
            return None
    if any(tokens.is_special(token) and token not in tokens.STOP_TOKENS for token in _content_ids(ids)):
        return None
    return ExpectedOutput(
        reasoning=tuple(sorted_texts["analysis"]),
        preambles=tuple(sorted_texts["commentary"]),
        finals=tuple(sorted_texts["final"]),
        calls=tuple(calls),
        finish=_finish(ids, calls),
    )


_NAMED = re.compile(re.escape(FUNCTIONS) + r"\S+")


def named_in(ids: Sequence[int]) -> frozenset[str]:
    """What a broken completion may have been meant to call: each text in its headers after `to=functions.`, up to a special token, cut at any word."""
    headers = (found.group(1).split(" ") for found in _RECIPIENT.finditer(decode(tuple(ids))))
    return frozenset(" ".join(words[:count]) for words in headers for count in range(1, len(words) + 1))


_RECIPIENT = re.compile(r"to=(?:functions\.)?(?!functions\.)([^<\n]{1,200})")


def told_in_order(texts: Sequence[str], whole: str) -> bool:
    """Whether `whole` is these texts in order, with nothing but white space between; a character cut at the end may be missing."""
    rest = whole
    for told in (one.rstrip(_REPLACEMENT) for one in texts):
        rest = rest if told[:1].isspace() else rest.lstrip()
        found = next((form for form in (told, told.strip()) if rest.startswith(form)), None)
        if found is None:
            return False
        rest = rest[len(found) :]
    return not rest.strip(_REPLACEMENT + " \n\t\r")


_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, kw_only=True)
class OutputTokenCounts:
    """How many of the emitted tokens were written for somebody: `shown` in messages for the user, `called` in messages to a tool."""

    shown: int = 0
    called: int = 0


def written_tokens(ids: Sequence[int]) -> OutputTokenCounts:
    """Count contents outside the analysis channel, and text that never got a `<|message|>`.

    Headers are not counted, nor is one that generation was cut in.
    """
    shown = called = 0
    header: list[int] = []
    inside = private = calling = False
    for token in ids:
        if token == tokens.MESSAGE and not inside:
            inside, calling = True, _to_somebody(header)
            private = tokens.CHANNEL in header and _ANALYSIS in header
        elif token in tokens.STOP_TOKENS:
            words = sum(1 for other in header if not tokens.is_special(other))
            shown += 0 if inside else max(0, words - _HEADER_WORDS)
            inside, header = False, []
        elif not inside:
            header.append(token)
        elif not private and not tokens.is_special(token):
            shown, called = (shown, called + 1) if calling else (shown + 1, called)
    return OutputTokenCounts(shown=shown, called=called)


def _to_somebody(header: Sequence[int]) -> bool:
    return "to=" in decode([token for token in header if not tokens.is_special(token)])


def _finish(ids: Sequence[int], calls: Sequence[FunctionCall]) -> str | None:
    match ids[-1] if ids else None:
        case tokens.CALL:
            return "tool_calls" if calls else None
        case tokens.RETURN:
            return "tool_calls" if calls else "stop"
        case _:
            return None


_JSON = ("json", "<|constrain|>json")
"""Content types that the reference reads as recipients, where a header has no other."""


def strip_endoftext(ids: Sequence[int]) -> tuple[int, ...]:
    """The ids without the `<|endoftext|>` by which an engine ends what its model did not."""
    return tuple(ids[:-1] if ids and ids[-1] == tokens.ENDOFTEXT else ids)


def _content_ids(ids: Sequence[int]) -> Iterator[int]:
    inside = False
    for token in ids:
        if inside:
            inside = token not in tokens.STOP_TOKENS
            yield token
        elif token == tokens.MESSAGE:
            inside = True


def _has_special(*texts: str | None) -> bool:
    return any(text is not None and "<|" in text.removeprefix("<|constrain|>") for text in texts)


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(text(item) for item in items(value))
