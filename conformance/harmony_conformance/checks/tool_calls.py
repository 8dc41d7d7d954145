"""Family `tool_calls`: a call the model made arrives as a call, whole, under its name, and only then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harmony_conformance.apis.chat_completion import ABORTED
from harmony_conformance.checks.helpers.json_schema import first_violation
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import named_in
from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    at,
    canonical,
    equal_json,
    items,
    loads,
    object_in,
    pointer,
    spells_fractions,
    text,
)
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, condition, variant, within_limits
from harmony_conformance.prompts import chat_request
from harmony_conformance.redactable_text import Location, RedactableText, quote, shorten


@check(MUST, spec="harmony#receiving-calls", when=(on.is_conversation, on.called_a_tool, on.offered_tools))
def name_is_declared(x: Exchange) -> Iterator[Finding]:
    """A called function is one that the request declared, unless the model itself named another.

    Engines that pass the recipient through unread answer `functions.get_weather` or `get_weather<|channel|>commentary`, which no client has a handler
    for (defects V04, O01, O18, S02).
    """
    declared = [text(at(tool, "function", "name")) for tool in x.tools]
    invented = _invented(x)
    for index, call in enumerate(x.turn.tool_calls if x.turn else ()):
        if call.name not in declared and call.name not in invented:
            yield Finding(
                message="a function was called that the request does not declare",
                at=pointer("tool_calls", index, "function", "name"),
                expected=RedactableText("one of {}", ", ".join(declared)),
                actual=shorten(call.name) or "an empty name",
            )


def _invented(x: Exchange) -> frozenset[str]:
    """The names that the model itself wrote; of a header gone wrong, all that it may have been meant to name."""
    if x.expectation is not None:
        return frozenset(call.name for call in x.expectation.must.calls + x.expectation.may_call)
    if x.expected_output is not None:
        return frozenset(call.name for call in x.expected_output.calls)
    return named_in(x.output.ids) if x.output.ids is not None else frozenset()


@check(MUST, spec="chat#tool-call", when=(on.is_conversation, on.called_a_tool))
def call_is_complete(x: Exchange) -> Iterator[Finding]:
    """Each call has an id, the type `function`, a name, and arguments as text; no two calls of one answer share an id.

    Without an id of its own a result cannot be sent back to its call (defects V13, O17).
    """
    if x.turn is None:
        return
    for index, call in enumerate(x.turn.tool_calls):
        for member, value in (("id", call.id), ("type", call.kind == "function"), ("function/name", call.name)):
            if not value:
                yield Finding(
                    message=RedactableText("call {} has no proper {}", index + 1, Location(member)),
                    at=f"/tool_calls/{index}/{member}",
                    expected="function" if member == "type" else "a text",
                    actual="something else, or nothing",
                )
    for whole in items(at(x.chat_completion, "choices", 0, "message", "tool_calls")):
        if not isinstance(at(whole, "function", "arguments"), str):
            yield Finding(
                message="the arguments are no text",
                at="/tool_calls",
                expected="a string of JSON",
                actual=quote(type(at(whole, "function", "arguments")).__name__),
            )
    twice = [name for name, count in Counter(call.id for call in x.turn.tool_calls if call.id).items() if count > 1]
    if twice:
        yield Finding(
            message="two calls of one answer have the same id",
            at="/tool_calls",
            expected="an id for each call",
            actual=RedactableText("{} shared", len(twice)),
        )


@check(MUST, spec="chat#arguments", when=(on.is_conversation, on.ended_well, on.meaning_is_known, on.meant_call))
def calls_arrive(x: Exchange) -> Iterator[Finding]:
    """Every call the model made arrives, in order, with the name and the arguments the model wrote, valid JSON or not.

    Arguments that are written anew are a variant as long as they are equal as JSON, and no whole number becomes a fraction (1.0), which typed clients refuse.
    Calls are dropped, cut to `{}`, or re-serialised with other values (defects V10, V15, S01, S03, M02). Servers that end the turn at the first
    `<|call|>` are right to return one, and so is one that was told `parallel_tool_calls: false`. Calls that the request does not allow are left out.
    """
    turn, meant = x.turn, x.expected_output
    if turn is None or meant is None:
        return
    made = [
        call for call in meant.calls if chat_request.may_be_called(x.chat_request, call.name) and x.has_place_for(call)
    ]
    expected_calls = made[:1] if at(x.chat_request, "parallel_tool_calls") is False else made
    for index, call in enumerate(expected_calls):
        where = pointer("tool_calls", index)
        if index >= len(turn.tool_calls):
            yield Finding(
                message=RedactableText("call {} of {} is lost", index + 1, len(made)),
                at=where,
                expected=RedactableText("{}({})", call.name, shorten(call.arguments)),
                actual="no such call",
            )
            continue
        got = turn.tool_calls[index]
        if got.name != call.name:
            yield Finding(
                message="a call arrived under another name",
                at=where + "/function/name",
                expected=quote(call.name),
                actual=shorten(got.name),
            )
        if got.arguments == call.arguments or _is_the_object(x, got.arguments, call.arguments):
            continue
        if equal_json(got.arguments, call.arguments) and not spells_fractions(call.arguments, got.arguments):
            yield variant(
                "the arguments were written anew: equal as JSON, another text", where=where + "/function/arguments"
            )
        else:
            expected, actual = text_difference(call.arguments, got.arguments)
            anew = equal_json(got.arguments, call.arguments)
            yield Finding(
                message="a whole number of the arguments was written anew, with a fraction"
                if anew
                else "the arguments differ from what the model wrote",
                at=where + "/function/arguments",
                expected=expected,
                actual=actual,
            )
    if len(turn.tool_calls) > len(meant.calls):
        yield Finding(
            message="a call arrived that the model did not make",
            at="/tool_calls",
            expected=RedactableText("{} calls", len(meant.calls)),
            actual=RedactableText("{} calls", len(turn.tool_calls)),
        )


def _is_the_object(x: Exchange, got: str, written: str) -> bool:
    """Whether arguments are what the model wrote, in an API that has them as an object."""
    return not x.api_adapter.arguments_are_texts and canonical(object_in(got)) == canonical(object_in(written))


@check(MUST, spec="chat#tool-choice", when=(on.is_conversation, on.forbade_tools))
def none_means_none(x: Exchange) -> Iterator[Finding]:
    """No call is returned where the request forbids tools or offers none.

    A client that sent no tools has nothing to run (defects V36, O12).
    """
    if x.turn is not None and x.turn.tool_calls:
        yield Finding(
            message="a call was returned although the request allows none",
            at="/tool_calls",
            expected="no tool_calls",
            actual=quote(", ".join(shorten(call.name) for call in x.turn.tool_calls)),
        )


@check(MUST, spec="chat#tool-choice-required", when=(on.is_conversation, on.ended_well, on.demands_a_call))
def demanded_call_is_made(x: Exchange) -> Iterator[Finding]:
    """Where the request demands a call, one is returned; where it names the function, or those that are allowed, to one of them.

    A server that answers with the call as text, or with an answer, breaks every client that forces a tool (defect P04).
    """
    if x.turn is None:
        return
    called = [call.name for call in x.turn.tool_calls]
    allowed = chat_request.named(x.chat_request)
    named = " or ".join(sorted(allowed))
    if not called:
        yield Finding(
            message="the request demands a call and none is returned",
            at="/tool_calls",
            expected=RedactableText("a call of {}", named) if named else "at least one call",
            actual=RedactableText("no tool_calls, finish_reason {}", x.turn.finish_reason),
        )
    elif named and not allowed.issuperset(called):
        yield Finding(
            message="another function was called than the one the request names",
            at="/tool_calls",
            expected=quote(named),
            actual=quote(", ".join(shorten(name) for name in called)),
        )


@within_limits
def takes_allowed_tools(x: Exchange) -> bool:
    """servers that do not refuse a list of allowed functions"""
    return not (chat_request.allows_some(x.chat_request) and on.was_refused.holds(x) and not on.is_server_error(x))


@condition
def allows_some(x: Exchange) -> bool:
    """answers to requests whose `tool_choice` lists the functions that may be called"""
    return x.turn is not None and chat_request.allows_some(x.chat_request)


@check(MUST, spec="chat#allowed-tools", when=(on.is_conversation, takes_allowed_tools, allows_some))
def only_allowed_tools(x: Exchange) -> Iterator[Finding]:
    """Where the request lists the functions that may be called, no other one is, whatever else it offers.

    A client offers all its functions in every request, so that the prompt stays in the cache, and allows those that are safe just now: a server that
    takes the list for `auto` lets the model delete what it was to read.
    """
    for index, call in enumerate(x.turn.tool_calls if x.turn is not None else ()):
        if not chat_request.may_be_called(x.chat_request, call.name):
            yield Finding(
                message="a function was called that the request does not allow",
                at=pointer("tool_calls", index, "function", "name"),
                expected=RedactableText("one of {}", ", ".join(sorted(chat_request.named(x.chat_request)))),
                actual=shorten(call.name) or "an empty name",
            )


@condition
def was_not_cut(x: Exchange) -> bool:
    """answers that no limit cut"""
    return x.turn is not None and not x.turn.was_broken_off


_REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")


@check(MUST, spec="chat#finish-reason", when=(on.is_reporting, on.ended_well))
def finish_reason_agrees(x: Exchange) -> Iterator[Finding]:
    """finish_reason is one of the API's words: `tool_calls` exactly when calls are returned and the model stopped by itself.

    Agent loops branch on it: `stop` beside calls ends the loop, `tool_calls` without calls spins it (defect S06). A row written for the output may name
    fewer of them. SGLang and vLLM say `abort` where they were told to end a generation: who reads it knows that it is no answer.
    """
    turn = x.turn
    if turn is None:
        return
    said, calls = turn.finish_reason, bool(turn.tool_calls)
    named = x.expectation.finish if x.expectation is not None else ()
    if said == ABORTED:
        yield variant(
            "the server was told to abort the generation, and has a finish_reason of its own for it",
            where="/finish_reason",
        )
        return
    if said == "stop_sequence":
        yield variant("a stop string has a finish_reason of its own", where="/finish_reason")
    elif said is not None and said not in _REASONS:
        yield Finding(
            message="finish_reason is none of the API's words",
            at="/finish_reason",
            expected=", ".join(_REASONS),
            actual=shorten(said),
        )
    elif (said == "length" and x.reached_stop) or (said == "tool_calls" and x.hit_token_limit):
        yield Finding(
            message=f"finish_reason is {said} and the model {'ended its turn' if x.reached_stop else 'was cut'}",
            at="/finish_reason",
            expected="stop or tool_calls" if x.reached_stop else "length",
            actual=quote(said),
        )
    if said is None:
        yield Finding(
            message="the answer has no finish_reason",
            at="/finish_reason",
            expected="tool_calls" if calls else "stop or length",
            actual="nothing",
        )
    elif said == "tool_calls" and not calls:
        yield Finding(
            message="finish_reason is tool_calls and there is no call",
            at="/finish_reason",
            expected="stop",
            actual=quote(said),
        )
    elif calls and said == "stop":
        if isinstance(at(x.chat_request, "tool_choice"), dict):
            yield variant("finish_reason is stop beside the call that the request named", where="/finish_reason")
        else:
            yield Finding(
                message="calls are returned and finish_reason is stop",
                at="/finish_reason",
                expected="tool_calls",
                actual=quote(said),
            )
    elif named and said not in named and calls == ("tool_calls" in named):
        yield Finding(
            message="finish_reason is not the one that goes with what the model wrote",
            at="/finish_reason",
            expected=quote(" or ".join(named)),
            actual=quote(said),
        )


@condition
def wants_one_call(x: Exchange) -> bool:
    """answers with a call to requests with `parallel_tool_calls: false`"""
    return on.called_a_tool.holds(x) and at(x.chat_request, "parallel_tool_calls") is False


@check(MUST, spec="chat#parallel-tool-calls", when=(on.is_conversation, on.ended_well, wants_one_call))
def one_at_a_time(x: Exchange) -> Iterator[Finding]:
    """A request with `parallel_tool_calls: false` gets one call at most.

    A client that runs one call and answers one leaves the others open, and the next request is refused (defects O12, M15).
    """
    calls = [call for call in x.turn.tool_calls if call.name] if x.turn is not None else []
    if len(calls) > 1:
        yield Finding(
            message="several calls are returned although the request wants one at a time",
            at="/tool_calls",
            expected="one call",
            actual=quote(", ".join(shorten(call.name) for call in calls)),
        )


@check(
    MUST,
    spec="chat#strict-call",
    when=(on.is_conversation, on.ended_well, on.called_a_tool, on.offered_tools, was_not_cut),
)
def arguments_fit_the_schema(x: Exchange) -> Iterator[Finding]:
    """The arguments of a `strict` function are what its schema describes; those of others are the model's own affair.

    Values that no model would choose show it with any weights (defect V23). Without `strict` the API promises nothing, so that arguments which are wrong
    are a variant where nobody knows who wrote them, and nothing where the model did. OpenAI does not promise it of several calls at once either.
    """
    written = {call.arguments for call in x.expected_output.calls} if x.expected_output is not None else set[str]()
    calls = x.turn.tool_calls if x.turn is not None else ()
    for index, call in enumerate(calls):
        declared = next((at(tool, "function") for tool in x.tools if at(tool, "function", "name") == call.name), None)
        broken = _broken(call.arguments, at(declared, "parameters"))
        is_strict = at(declared, "strict") is True
        is_its_own = any(call.arguments == own or _is_the_object(x, call.arguments, own) for own in written)
        if broken is None or (is_its_own and not is_strict) or (is_strict and x.script is not None):
            continue
        where = pointer("tool_calls", index, "function", "arguments") + broken[0]
        if is_strict and (len(calls) == 1 or at(x.chat_request, "parallel_tool_calls") is False):
            yield Finding(
                message="the arguments of a strict function are not what its schema describes",
                at=where,
                expected="a value of the schema",
                actual=shorten(broken[1]),
            )
        else:
            yield variant("the arguments are not what the function's schema describes", where=where)


def _broken(arguments: str, schema: Json) -> tuple[str, str] | None:
    """Where arguments are not what a schema describes, and why; None where they are, or there is no schema."""
    if schema is None:
        return None
    try:
        return first_violation(loads(arguments), schema)
    except InvalidJsonError as problem:
        return "", f"no JSON: {problem}"


@condition
def goes_on_calling(x: Exchange) -> bool:
    """answers with a call to requests whose history holds calls"""
    return on.called_a_tool.holds(x) and bool(_known_ids(x))


def _known_ids(x: Exchange) -> frozenset[str]:
    calls = (call for message in x.messages for call in items(at(message, "tool_calls")))
    return frozenset(name for call in calls if (name := text(at(call, "id"))))


@check(MUST, spec="chat#tool-call-id", when=(on.is_conversation, goes_on_calling))
def id_is_new(x: Exchange) -> Iterator[Finding]:
    """The id of a call is none that an earlier call of the conversation has.

    Results name their call by it: where each answer counts from 0 again, nobody can tell whose result is whose.
    """
    known = _known_ids(x)
    for index, call in enumerate(x.turn.tool_calls if x.turn is not None else ()):
        if call.id in known:
            yield Finding(
                message="a call has the id of an earlier call",
                at=pointer("tool_calls", index, "id"),
                expected="an id of its own",
                actual=shorten(call.id or ""),
            )
