"""Family `client`: the history that a client sends back. Judged on the request alone, whatever the server does with it.

Applies to recorded traffic, and to scenarios that play a client and send back the server's answers. There, a failure shows an answer that cannot be sent
back as it should be. The other requests of the suite break these rules on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import LiteralString

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks import JOINED_WORDS, STRUCTURE, remove_code
from harmony_conformance.evidence.leaks.channel_words import may_hold_words
from harmony_conformance.json_value import InvalidJsonError, Json, items, loads, pointer, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, mismatch, variant
from harmony_conformance.judge.condition import condition
from harmony_conformance.judge.history_conditions import has_earlier_answer, has_full_history, has_user_message
from harmony_conformance.prompts.request_members import REASONING_FIELDS, content_text
from harmony_conformance.redactable_text import RedactableText, quote, shorten

TRAFFIC = "traffic"
CLIENT_SCENARIO_PREFIX = "client_"
"""Prefix of the names of scenarios that play a client."""


@condition
def comes_from_a_client(x: Exchange) -> bool:
    """requests of clients: recorded traffic, and scenarios that play a client"""
    return x.scenario == TRAFFIC or x.scenario.startswith(CLIENT_SCENARIO_PREFIX)


def _calls(x: Exchange) -> Iterator[tuple[int, int, Json]]:
    """Yield every call of the history with the index of its message and its index in that message."""
    for index, message in enumerate(x.messages):
        for number, call in enumerate(items(value_at(message, "tool_calls"))):
            yield index, number, call


def _open_loop(x: Exchange) -> list[Json]:
    """Return the assistant messages with calls after the last user message, latest first; none unless a result comes last."""
    if not x.messages or value_at(x.messages[-1], "role") != "tool":
        return []
    latest = takewhile(lambda message: value_at(message, "role") != "user", reversed(x.messages))
    return [message for message in latest if items(value_at(message, "tool_calls"))]


def _reasoning(message: Json) -> str:
    """Return the reasoning, or `reasoning_details` if the message has that list, which OpenRouter returns and expects back."""
    texts = (text(value_at(message, name)) for name in REASONING_FIELDS)
    return next(filter(None, texts), "reasoning_details" if items(value_at(message, "reasoning_details")) else "")


@condition
def is_in_a_tool_loop(x: Exchange) -> bool:
    """requests that end with the result of a call"""
    return bool(_open_loop(x))


@condition
def returns_reasoning(x: Exchange) -> bool:
    """requests to servers that return reasoning"""
    return x.turn is not None and bool(x.turn.reasoning)


@check(
    SHOULD,
    spec="harmony#keep-reasoning",
    when=(on.is_conversation, comes_from_a_client, is_in_a_tool_loop, returns_reasoning),
)
def reasoning_is_sent_back(x: Exchange) -> Iterator[Finding]:
    """Inside a tool loop a client sends back the reasoning that came with the calls.

    Without it the model has forgotten why it called, plans again after every result, and repeats the call (defect P11).
    """
    loop = _open_loop(x)
    if not any(map(_reasoning, loop)):
        message = "the calls of the open tool loop come back without any reasoning"
        where = pointer("messages", x.messages.index(loop[-1]))
        actual = "none of reasoning, reasoning_content, thinking"
        yield mismatch(message, where, "the reasoning of the answer that made the call", actual)


_WRAPPED = re.compile(r"<(think|reasoning)>[\s\S]*?</\1>")


@check(SHOULD, spec="harmony#drop-reasoning", when=(on.is_conversation, comes_from_a_client, has_earlier_answer))
def answers_come_back_alone(x: Exchange) -> Iterator[Finding]:
    """Earlier answers come back without the reasoning that led to them.

    A server drops reasoning from a separate field. It cannot drop it from the content: the model reads its old thoughts as its answer, and imitates that.
    """
    users = (index for index, message in enumerate(x.messages) if value_at(message, "role") == "user")
    last_user = max(users, default=0)
    for index, message in enumerate(x.messages):
        if value_at(message, "role") != "assistant":
            continue
        content = remove_code(content_text(value_at(message, "content")) or "")
        leak = (_WRAPPED.search(content) if "<" in content else None) or (
            JOINED_WORDS.search(content) if may_hold_words(content) else None
        )
        if leak is not None:
            problem, where = (
                "the content of an earlier answer contains its reasoning",
                pointer("messages", index, "content"),
            )
            if x.scenario != TRAFFIC:  # the suite sends back what the server answered, and has judged that answer
                yield variant(problem, where=where)
                continue
            yield mismatch(problem, where, "the answer alone", shorten(content[leak.start() :]))
        elif index < last_user and _reasoning(message) and not items(value_at(message, "tool_calls")):
            where = pointer("messages", index)
            yield variant("the reasoning of a finished turn is sent back; the server has to drop it", where=where)


_RENDERED = re.compile(r"\s*<\|(?:start|channel)\|>[^<\n]{0,80}(?:<\|[^<\n]{0,80}){0,3}<\|message\|>")


@check(SHOULD, spec="harmony#special-tokens", when=(on.is_conversation, comes_from_a_client, has_user_message))
def messages_are_not_rendered(x: Exchange) -> Iterator[Finding]:
    """A client leaves Harmony's markers to the server: no message is already rendered.

    Markers that a client writes reach the model as ordinary text, next to the server's real ones. The model then learns to write text where tokens belong.
    """
    for index, message in enumerate(x.messages):
        content = content_text(value_at(message, "content")) or ""
        is_assistant = value_at(message, "role") == "assistant"
        marker = STRUCTURE.search(remove_code(content)) if is_assistant else _RENDERED.match(content)
        if marker is not None:
            problem = "a message contains Harmony markers as text"
            expected = "the text of the message alone"
            yield mismatch(problem, pointer("messages", index, "content"), expected, shorten(content))


@condition
def sends_results(x: Exchange) -> bool:
    """requests with a function result"""
    return any(value_at(message, "role") == "tool" for message in x.messages)


@check(MUST, spec="chat#tool-call-id", when=(on.is_conversation, comes_from_a_client, sends_results, has_full_history))
def results_name_their_calls(x: Exchange) -> Iterator[Finding]:
    """Every result names, by `tool_call_id`, one call of the history before it, and no two calls share an id.

    Harmony names a result after its function, and only the id identifies that function.
    """
    seen: set[str] = set()
    for index, message in enumerate(x.messages):
        for number, call in enumerate(items(value_at(message, "tool_calls"))):
            name = text(value_at(call, "id"))
            if name in seen:
                problem = "two calls have the same id"
                actual = quote(name) or "no id"
                yield mismatch(problem, pointer("messages", index, "tool_calls", number, "id"), "a unique id", actual)
            seen.add(name)
        if value_at(message, "role") == "tool" and text(value_at(message, "tool_call_id")) not in seen - {""}:
            problem = "a result does not name the call that it answers"
            expected = quote(" or ".join(sorted(seen - {""}))) or "the id of an earlier call"
            actual = quote(text(value_at(message, "tool_call_id"))) or "no id"
            yield mismatch(problem, pointer("messages", index, "tool_call_id"), expected, actual)


@condition
def sends_calls(x: Exchange) -> bool:
    """requests whose history contains a call"""
    return any(True for _ in _calls(x))


@check(SHOULD, spec="chat#tool-call-id", when=(on.is_conversation, comes_from_a_client, sends_calls))
def calls_are_answered(x: Exchange) -> Iterator[Finding]:
    """Every call of the history is answered before any other message.

    A model that sees a call without a result waits for it, repeats the call, or invents a result.
    """
    for index, number, call in _calls(x):
        results = takewhile(lambda message: value_at(message, "role") == "tool", x.messages[index + 1 :])
        if text(value_at(call, "id")) not in {text(value_at(message, "tool_call_id")) for message in results}:
            problem = RedactableText("the call of {} has no result", text(value_at(call, "function", "name")))
            expected = "a message with role tool after it"
            yield mismatch(problem, pointer("messages", index, "tool_calls", number), expected, "none")


@check(MUST, spec="chat#arguments", when=(on.is_conversation, comes_from_a_client, sends_calls))
def arguments_are_encoded_once(x: Exchange) -> Iterator[Finding]:
    """The arguments of a call come back as the text that the model wrote: not decoded, and not encoded a second time.

    If they are encoded twice, the model reads a quoted text in place of its earlier call, and quotes the next one (defect J01).
    """
    for index, number, call in _calls(x):
        arguments = value_at(call, "function", "arguments")
        if isinstance(arguments, str) and not _is_quoted_json(arguments):
            continue
        has_texts, is_text = x.api_adapter.has_text_arguments, isinstance(arguments, str)
        problem: LiteralString = ("encoded twice" if has_texts else "encoded as a text") if is_text else "not a string"
        where = pointer("messages", index, "tool_calls", number, "function", "arguments")
        expected: LiteralString = "JSON, encoded once, as a string" if has_texts else "an object"
        actual = shorten(arguments) if isinstance(arguments, str) else quote(type(arguments).__name__)
        yield mismatch(f"the arguments of a call are {problem}", where, expected, actual)


def _is_quoted_json(arguments: str) -> bool:
    try:
        inner = loads(arguments)
        return isinstance(inner, str) and isinstance(loads(inner), dict | list)
    except InvalidJsonError:
        return False
