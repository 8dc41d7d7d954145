"""Ollama: the lines of a stream, its last line, calls, and the context."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.registry import OLLAMA, OLLAMA_GENERATE, OLLAMA_RAW
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES
from harmony_conformance.json_value import InvalidJsonError, Json, dumps, integer, items, members, pointer, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, cited, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, only_on
from harmony_conformance.redactable_text import RedactableText, shorten

_NATIVE = frozenset({OLLAMA.name, OLLAMA_GENERATE.name, OLLAMA_RAW.name})
_OUTPUT_MEMBERS = ("message", "response")
_CLAUSES = {"arguments": "ollama#arguments", "name": "ollama#call-name"}
_STATS = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration")
_ENDINGS = ("stop", "length", "load", "unload")


@only_on(*_NATIVE)
@condition
def is_ollama(x: Exchange) -> bool:
    """answered requests to Ollama's own API"""
    return x.api in _NATIVE and x.validity not in REFUSABLE_VALIDITIES and on.was_answered.holds(x)


@only_on(*_NATIVE)
@condition
def has_full_line_stream(x: Exchange) -> bool:
    """streams of Ollama's own API that were read to their end"""
    return x.api in _NATIVE and on.has_full_stream.holds(x)


@check(MUST, spec="ollama#stream", when=has_full_line_stream)
def lines_are_objects(x: Exchange) -> Iterator[Finding]:
    """Each line of a stream is one JSON object with output or an error, and the last line ends in a line feed too.

    Ollama's clients read line by line: server-sent events or a split line raise an exception in all of them.
    """
    stream = x.events
    if stream is None:
        return
    for index, event in enumerate(stream.events):
        try:
            value = event.json
        except InvalidJsonError as problem:
            invalid = RedactableText("a line is not valid JSON: {}", problem)
            yield mismatch(invalid, f"line {index}", "a JSON object", shorten(event.data))
            return
        if not any(isinstance(value_at(value, name), dict | str) for name in (*_OUTPUT_MEMBERS, "error")):
            message = "a line has neither output nor an error"
            yield mismatch(message, f"line {index}", "message, response or error", shorten(event.stable_data))
            return
    if stream.unfinished_data:
        message = "the stream ends within a line"
        expected = "a line feed after each object"
        yield mismatch(message, f"line {len(stream.events)}", expected, shorten(stream.unfinished_data))


@check(MUST, spec="ollama#last-line", when=(is_ollama, on.is_complete_answer))
def last_line_is_done(x: Exchange) -> Iterator[Finding]:
    """An answer has `done: true` once, on its last line, with the reason why it ended, and counts in whole numbers.

    A client reads until `done`: if it comes too early, the rest is lost; if it never comes, the connection seems broken.
    """
    lines = _lines(x)
    done = [place for place, value in enumerate(lines) if value_at(value, "done") is True]
    if done != [len(lines) - 1]:
        where = f"line {done[0]}" if done else f"line {len(lines)}"
        expected = RedactableText("done: true on line {} only", len(lines) - 1)
        actual = RedactableText("on {} lines of {}", len(done), len(lines))
        yield mismatch("`done: true` does not come once, on the last line", where, expected, actual)
    last = members(lines[-1]) if lines else {}
    if last.get("done_reason") not in _ENDINGS:
        message = "the last line has no valid done_reason"
        yield mismatch(message, "/done_reason", " or ".join(_ENDINGS), shorten(dumps(last.get("done_reason"))))
    for name in _STATS:
        value = last.get(name, 0)
        if (integer(value) or 0) < 0 or integer(value) is None:
            message = f"{name} is negative" if integer(value) is not None else f"{name} is not a whole number"
            wanted = "a whole number of nanoseconds or tokens, 0 or more"
            yield cited(mismatch(message, pointer(name), wanted, shorten(dumps(value))), "ollama#statistics")


@only_on(*_NATIVE)
@condition
def called_natively(x: Exchange) -> bool:
    """answers of Ollama's own API with a call"""
    return is_ollama.holds(x) and any(True for _ in _calls(x))


def _lines(x: Exchange) -> list[Json]:
    return [event.value for event in x.events.events] if x.events is not None else [x.response_json]


def _calls(x: Exchange) -> Iterator[Json]:
    for value in _lines(x):
        yield from items(value_at(value, "message", "tool_calls")) or items(value_at(value, "tool_calls"))


@check(MUST, spec="ollama#tool-calls", when=called_natively)
def arguments_are_objects(x: Exchange) -> Iterator[Finding]:
    """A call has a function with a name and with arguments that are a JSON object.

    Ollama's clients pass them to the function unchanged. A string, as in Chat Completions, is a type error in all of them.
    """
    for index, call in enumerate(_calls(x)):
        function = value_at(call, "function")
        wrong = "arguments" if not isinstance(value_at(function, "arguments"), dict) else "name"
        name = value_at(function, "name")
        if wrong == "name" and isinstance(name, str) and name:
            continue
        where = pointer("tool_calls", index, "function", wrong)
        expected = "an object" if wrong == "arguments" else "a string that is not empty"
        actual = shorten(dumps(value_at(function, wrong)))
        yield cited(mismatch(f"a call has no valid {wrong}", where, expected, actual), _CLAUSES[wrong])


@only_on(OLLAMA_GENERATE.name)
@evidence
def has_context(x: Exchange) -> bool:
    """answers of /api/generate with a context and token counts"""
    turn = x.turn
    is_counted = turn is not None and turn.usage is not None and turn.usage.total_tokens is not None
    return x.api == OLLAMA_GENERATE.name and is_counted and bool(_context(x))


def _context(x: Exchange) -> list[Json]:
    last = x.events.events[-1].value if x.events is not None and x.events.events else x.response_json
    return items(value_at(last, "context"))


@check(SHOULD, spec="ollama#context", when=(has_context, on.is_complete_answer))
def context_is_the_conversation(x: Exchange) -> Iterator[Finding]:
    """The context consists of the prompt tokens followed by all output tokens, with reasoning and markers.

    The next request starts with it. Without the answer the model forgets what it wrote; re-encoded from the texts, the tokens differ.
    """
    context = [integer(token) for token in _context(x)]
    total = x.turn.usage.total_tokens if x.turn is not None and x.turn.usage is not None else None
    known = [*(x.prompt.ids or ()), *(x.output.ids or ())] if x.prompt.ids is not None and x.output.ids else context
    if total is not None and total - len(context) in (0, 1) and context == known[: len(context)]:
        if total != len(context):
            yield variant("the token that ended the answer is missing in the context", where="/context")
        return
    message = "the context is not the prompt followed by the output"
    actual = RedactableText("{} tokens", len(context)) if len(context) != total else "other tokens"
    yield mismatch(message, "/context", RedactableText("{} tokens", total), actual)
