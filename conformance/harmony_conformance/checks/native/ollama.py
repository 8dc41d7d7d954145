"""Ollama: lines, the last of them, calls, and the context."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.registry import OLLAMA, OLLAMA_GENERATE, OLLAMA_RAW
from harmony_conformance.evidence.exchange import ODD, Exchange
from harmony_conformance.json_value import InvalidJsonError, Json, at, dumps, items, members, number, pointer, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, condition, evidence, only_on, variant
from harmony_conformance.redactable_text import RedactableText, shorten

_NATIVE = frozenset({OLLAMA.name, OLLAMA_GENERATE.name, OLLAMA_RAW.name})
_SAYS = ("message", "response")
_COUNTS = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)
_ENDINGS = ("stop", "length", "load", "unload")


@only_on(*_NATIVE)
@condition
def is_ollama(x: Exchange) -> bool:
    """answered requests to Ollama's own API"""
    return x.api in _NATIVE and x.validity not in ODD and on.was_answered.holds(x)


@only_on(*_NATIVE)
@condition
def came_in_lines(x: Exchange) -> bool:
    """streams of Ollama's own API that were read to their end"""
    return x.api in _NATIVE and on.came_in_chunks.holds(x)


@check(MUST, spec="ollama#stream", when=came_in_lines)
def lines_are_objects(x: Exchange) -> Iterator[Finding]:
    """Each line of a stream is one JSON object that says something or tells an error, and the last one is ended as the others are.

    Its clients read line by line: what is framed as server-sent events, or cut in two, is an exception in each of them.
    """
    stream = x.events
    if stream is None:
        return
    for index, event in enumerate(stream.events):
        try:
            value = event.json
        except InvalidJsonError as problem:
            yield Finding(
                message=RedactableText("a line is no JSON: {}", problem),
                at=f"line {index}",
                expected="a JSON object",
                actual=shorten(event.data),
            )
            return
        if not any(isinstance(at(value, name), dict | str) for name in (*_SAYS, "error")):
            yield Finding(
                message="a line neither says anything nor tells an error",
                at=f"line {index}",
                expected="message, response or error",
                actual=shorten(event.telling),
            )
            return
    if stream.unfinished:
        yield Finding(
            message="the stream ends within a line",
            at=f"line {len(stream.events)}",
            expected="a line feed behind each object",
            actual=shorten(stream.unfinished),
        )


@check(MUST, spec="ollama#last-line", when=(is_ollama, on.ended_well))
def last_line_is_done(x: Exchange) -> Iterator[Finding]:
    """An answer is done once, on its last line, which tells why it ended and what it took, in whole numbers.

    A client reads until `done`: one that comes too early hides the rest, one that never comes looks like a connection that broke.
    """
    told = [event.value for event in x.events.events] if x.events is not None else [x.response_json]
    done = [place for place, value in enumerate(told) if at(value, "done") is True]
    if done != [len(told) - 1]:
        yield Finding(
            message="the answer is not done once, at its end",
            at=f"line {done[0]}" if done else f"line {len(told)}",
            expected=RedactableText("done: true on line {} alone", len(told) - 1),
            actual=RedactableText("on {} lines of {}", len(done), len(told)),
        )
    last = members(told[-1]) if told else {}
    if last.get("done_reason") not in _ENDINGS:
        yield Finding(
            message="the last line does not tell why the answer ended",
            at="/done_reason",
            expected=" or ".join(_ENDINGS),
            actual=shorten(dumps(last.get("done_reason"))),
        )
    for name in _COUNTS:
        value = last.get(name, 0)
        if (number(value) or 0) < 0 or number(value) is None:
            yield Finding(
                message=f"{name} is no whole number",
                at=pointer(name),
                expected="a whole number, in nanoseconds or tokens",
                actual=shorten(dumps(value)),
            )


@only_on(*_NATIVE)
@condition
def called_natively(x: Exchange) -> bool:
    """answers of Ollama's own API with a call"""
    return is_ollama.holds(x) and any(True for _ in _calls(x))


def _calls(x: Exchange) -> Iterator[Json]:
    told = [event.value for event in x.events.events] if x.events is not None else [x.response_json]
    for value in told:
        yield from items(at(value, "message", "tool_calls")) or items(at(value, "tool_calls"))


@check(MUST, spec="ollama#tool-calls", when=called_natively)
def arguments_are_objects(x: Exchange) -> Iterator[Finding]:
    """A call has a function with a name, and with arguments that are an object.

    Its clients hand them to the function as they are; a text, as Chat Completions has it, is a type error in every one of them.
    """
    for index, call in enumerate(_calls(x)):
        function = at(call, "function")
        wrong = "arguments" if not isinstance(at(function, "arguments"), dict) else "name"
        if wrong == "name" and text(at(function, "name")):
            continue
        yield Finding(
            message=f"a call has no proper {wrong}",
            at=pointer("tool_calls", index, "function", wrong),
            expected="an object" if wrong == "arguments" else "a text",
            actual=shorten(dumps(at(function, wrong))),
        )


@only_on(OLLAMA_GENERATE.name)
@evidence
def tells_its_context(x: Exchange) -> bool:
    """answers of /api/generate with a context and the number of their tokens"""
    turn = x.turn
    counted = turn is not None and turn.usage is not None and turn.usage.total_tokens is not None
    return x.api == OLLAMA_GENERATE.name and counted and bool(_context(x))


def _context(x: Exchange) -> list[Json]:
    last = x.events.events[-1].value if x.events is not None and x.events.events else x.response_json
    return items(at(last, "context"))


@check(SHOULD, spec="ollama#context", when=(tells_its_context, on.ended_well))
def context_is_the_conversation(x: Exchange) -> Iterator[Finding]:
    """The context is the prompt and behind it all that the model wrote, reasoning and markers too.

    The next request begins with it. Without the answer the model has forgotten what it said; made anew from the texts, it has other tokens.
    """
    held = [number(token) for token in _context(x)]
    total = x.turn.usage.total_tokens if x.turn is not None and x.turn.usage is not None else None
    known = [*(x.prompt.ids or ()), *(x.output.ids or ())] if x.prompt.ids is not None and x.output.ids else held
    if total is not None and total - len(held) in (0, 1) and held == known[: len(held)]:
        if total != len(held):
            yield variant("the token that ended the answer is left out of the context", where="/context")
        return
    yield Finding(
        message="the context is not what was read and written",
        at="/context",
        expected=RedactableText("{} tokens", total),
        actual=RedactableText("{} tokens", len(held)) if len(held) != total else "other tokens",
    )
