"""Family `tool_calls`: a call that the model made arrives as a call, whole and under its name; no other call arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harmony_conformance.apis.chat_completion import ABORTED
from harmony_conformance.checks.headers import INVENTED_CALL, WRITTEN_CALL
from harmony_conformance.checks.helpers.api_words import end_of, words_of
from harmony_conformance.checks.helpers.call_alignment import align_calls, is_same_call
from harmony_conformance.checks.helpers.call_changes import call_changes, is_same_object
from harmony_conformance.checks.helpers.fitting_clauses import (
    ARGUMENTS,
    CALL_ID,
    CALL_NAME,
    CALL_TYPE,
    clause_of_forbidden_call,
)
from harmony_conformance.checks.helpers.json_schema import first_violation
from harmony_conformance.checks.helpers.malformed_output import lenient_on_malformed_output
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import contains_call, possible_function_names
from harmony_conformance.evidence.leaks.by_text import Strength
from harmony_conformance.evidence.leaks.calls_in_text import written_calls
from harmony_conformance.json_value import InvalidJsonError, Json, items, loads, pointer, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, cited, mismatch, variant
from harmony_conformance.judge.condition import condition, within_limits
from harmony_conformance.prompts import request_members
from harmony_conformance.redactable_text import Location, RedactableText, quote, shorten


@check(
    MUST,
    spec="harmony#receiving-calls",
    when=(on.is_conversation, on.called_a_tool, on.offered_tools, on.is_no_random_guess),
)
def name_is_declared(x: Exchange) -> Iterator[Finding]:
    """A called function is one that the request declared, unless the model itself named another.

    Engines that do not parse the recipient return `functions.get_weather` or `get_weather<|channel|>commentary`. No client has a handler for such names
    (defects V04, O01, O18, S02).
    """
    declared = [text(value_at(tool, "function", "name")) for tool in x.tools]
    invented = _model_written_names(x) | request_members.other_tool_names(x.chat_request)
    for index, call in enumerate(x.turn.tool_calls if x.turn else ()):
        if call.name not in declared and call.name not in invented:
            message = "a function was called that the request does not declare"
            where = pointer("tool_calls", index, "function", "name")
            expected = RedactableText("one of {}", ", ".join(declared))
            yield mismatch(message, where, expected, shorten(call.name) or "an empty name")


@check(
    MUST,
    spec="harmony#receiving-calls",
    when=(
        on.is_conversation,
        on.was_answered_as_scripted,
        on.offered_tools,
        on.has_words_of_a_model,
        on.output_is_unknown,
    ),
)
def calls_are_not_text(x: Exchange) -> Iterator[Finding]:
    """No content ends with the header and the arguments of a call: `to=functions.get_weather json{"city":"Paris"}`.

    A parser that does not know the form of the header shows the call to the user, and no tool runs (defect M08). The function has to be declared. A
    request that contains the text, asks for it or is about the format gives a variant.
    """
    for leak in written_calls(x):
        if leak.strength is Strength.PROVEN:
            yield Finding(message=leak.message, location=leak.where, excerpt=leak.excerpt)
        elif leak.strength is Strength.QUOTED:
            message = RedactableText("{}, which the request is about or asks for", leak.message)
            yield variant(message, where=leak.where, actual=quote(leak.excerpt))


def _model_written_names(x: Exchange) -> frozenset[str]:
    """Return the names that the model itself wrote; for a broken header, all names that it may stand for."""
    if x.expectation is not None:
        return frozenset(call.name for call in x.expectation.required_output.calls + x.expectation.optional_calls)
    if x.expected_output is not None:
        return frozenset(call.name for call in x.expected_output.calls)
    return possible_function_names(x.output.ids) if x.output.ids is not None else frozenset()


@check(MUST, spec="chat#tool-call", when=(on.is_conversation, on.called_a_tool))
def call_is_complete(x: Exchange) -> Iterator[Finding]:
    """Each call has an id, the type `function`, a name, and arguments as a string; no two calls of one answer share an id.

    Without a unique id, a client cannot assign a result to its call (defects V13, O17).
    """
    if x.turn is None:
        return
    for index, call in enumerate(x.turn.tool_calls):
        wanted = (
            ("id", call.id, CALL_ID),
            ("type", call.kind == "function", CALL_TYPE),
            ("function/name", call.name, CALL_NAME),
        )
        for member, value, clause in wanted:
            if not value:
                problem = RedactableText("call {} has no valid {}", index + 1, Location(member))
                expected = "function" if member == "type" else "a text that is not empty"
                actual = "something else, or nothing" if member == "type" else "an empty text, or nothing"
                yield cited(mismatch(problem, f"/tool_calls/{index}/{member}", expected, actual), clause)
    for sent in items(value_at(x.chat_completion, "choices", 0, "message", "tool_calls")):
        arguments = value_at(sent, "function", "arguments")
        if not isinstance(arguments, str):
            message, kind = "the arguments are not a string", quote(type(arguments).__name__)
            yield cited(mismatch(message, "/tool_calls", "a string of JSON", kind), ARGUMENTS)
    twice = [name for name, count in Counter(call.id for call in x.turn.tool_calls if call.id).items() if count > 1]
    if twice:
        message, shared = "two calls of one answer have the same id", RedactableText("{} shared", len(twice))
        yield cited(mismatch(message, "/tool_calls", "an id for each call", shared), CALL_ID)


@check(
    MUST,
    spec="chat#tool-call",
    when=(on.is_conversation, on.is_complete_answer, on.expected_output_is_known, on.expects_call),
)
@lenient_on_malformed_output
def calls_arrive(x: Exchange) -> Iterator[Finding]:
    """Every call that the model made arrives, in order, with the name and the arguments that the model wrote, valid JSON or not.

    Rewritten arguments are a variant if they are equal as JSON, and no whole number becomes a fraction (1.0), which typed clients reject. Engines drop
    calls, cut them to `{}`, or re-serialise them with other values (defects V10, V15, S01, S03, M02). A server may return only one call if it ends the
    turn at the first `<|call|>`, or if the request has `parallel_tool_calls: false`. Calls that the request does not allow are not expected.
    """
    turn, output = x.turn, x.expected_output
    if turn is None or output is None:
        return
    allowed = (call for call in output.calls if request_members.can_be_called(x.chat_request, call.name))
    made = [call for call in allowed if x.can_return_call(call)]
    expected_calls = made[:1] if value_at(x.chat_request, "parallel_tool_calls") is False else made
    pairs = align_calls(expected_calls, turn.tool_calls)
    added = [place for index, place in pairs if index is None and place is not None]
    for index, place in pairs:
        if index is None:
            continue
        call = expected_calls[index]
        if place is None:
            moved = next((one for one in added if is_same_call(call, turn.tool_calls[one])), None)
            number = (index + 1, len(made))
            if moved is None:
                shown = RedactableText("{}({})", call.name, shorten(call.arguments))
                yield mismatch(RedactableText("call {} of {} is lost", *number), "/tool_calls", shown, "no such call")
                continue
            added.remove(moved)
            message = RedactableText("call {} of {} arrived in another order", *number)
            found = RedactableText("call {} of the answer", moved + 1)
            yield mismatch(message, pointer("tool_calls", moved), "the order of the model", found)
            continue
        yield from call_changes(x, call, turn.tool_calls[place], pointer("tool_calls", place))
    if len(added) > len(output.calls) - len(expected_calls):
        wanted = RedactableText("{} calls", len(output.calls))
        extra = turn.tool_calls[added[-1]]
        shown = RedactableText("{} calls: {}({})", len(turn.tool_calls), shorten(extra.name), shorten(extra.arguments))
        made_calls = {(call.name, call.arguments) for call in output.calls}
        is_written = all(
            (call.name, call.arguments) in made_calls or contains_call(x.output.ids or (), call.name, call.arguments)
            for call in turn.tool_calls
        )
        is_doubled = {(call.name, call.arguments) for call in turn.tool_calls} <= made_calls
        if is_written and not is_doubled:
            finding = mismatch(WRITTEN_CALL, "/tool_calls", wanted, shown)
            yield cited(finding, clause_of_forbidden_call(x, extra.name))
        else:
            yield mismatch(INVENTED_CALL, "/tool_calls", wanted, shown)


@check(MUST, spec="chat#tool-choice", when=(on.is_conversation, on.forbade_tools))
def none_means_none(x: Exchange) -> Iterator[Finding]:
    """No call is returned if the request forbids tools or offers none.

    A client that sent no tools has nothing to run (defects V36, O12).
    """
    if x.turn is not None and x.turn.tool_calls:
        message = "a call was returned although the request allows none"
        actual = quote(", ".join(shorten(call.name) for call in x.turn.tool_calls))
        yield mismatch(message, "/tool_calls", "no call", actual)


@check(MUST, spec="chat#tool-choice-required", when=(on.is_conversation, on.is_complete_answer, on.demands_a_call))
def demanded_call_is_made(x: Exchange) -> Iterator[Finding]:
    """A request that demands a call gets one; if it names one function or several, the call is of one of them.

    A server that returns the call as text, or an answer, breaks every client that forces a tool (defect P04).
    """
    if x.turn is None:
        return
    called = [call.name for call in x.turn.tool_calls]
    allowed = request_members.chosen_functions(x.chat_request)
    named = " or ".join(sorted(allowed))
    if not called:
        expected = RedactableText("a call of {}", named) if named else "at least one call"
        actual = RedactableText("no call, {}", end_of(x))
        yield mismatch("the request demands a call and none is returned", "/tool_calls", expected, actual)
    elif named and not allowed.issuperset(called):
        message = "another function was called than the one the request names"
        yield mismatch(message, "/tool_calls", quote(named), quote(", ".join(shorten(name) for name in called)))


@within_limits
def accepts_allowed_tools(x: Exchange) -> bool:
    """servers that do not refuse a list of allowed functions"""
    is_refused = on.was_refused.holds(x) and not on.is_server_error(x)
    return not (is_refused and request_members.has_allowed_tools(x.chat_request))


@condition
def lists_allowed_tools(x: Exchange) -> bool:
    """answers to requests whose `tool_choice` lists the functions that may be called"""
    return x.turn is not None and request_members.has_allowed_tools(x.chat_request)


@check(MUST, spec="chat#allowed-tools", when=(on.is_conversation, accepts_allowed_tools, lists_allowed_tools))
def only_allowed_tools(x: Exchange) -> Iterator[Finding]:
    """If the request lists the functions that may be called, no other one is called, whatever else it offers.

    A client offers all its functions in every request, so that the prompt stays in the cache, and allows those that are currently safe. A server that
    treats the list as `auto` lets the model delete a file that it may only read.
    """
    for index, call in enumerate(x.turn.tool_calls if x.turn is not None else ()):
        if not request_members.can_be_called(x.chat_request, call.name):
            message = "a function was called that the request does not allow"
            where = pointer("tool_calls", index, "function", "name")
            expected = RedactableText("one of {}", ", ".join(sorted(request_members.chosen_functions(x.chat_request))))
            yield mismatch(message, where, expected, shorten(call.name) or "an empty name")


@condition
def was_not_cut(x: Exchange) -> bool:
    """answers that no limit cut"""
    return x.turn is not None and not x.turn.is_truncated


_REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")


@check(MUST, spec="chat#finish-reason", when=(on.api_has_finish_reason, on.is_complete_answer))
def finish_reason_agrees(x: Exchange) -> Iterator[Finding]:
    """finish_reason is one of the API's words: `tool_calls` exactly when calls are returned and the model stopped by itself.

    Agent loops branch on it: `stop` with calls ends the loop, `tool_calls` without calls repeats it forever (defect S06). A row in the golden data may
    allow fewer of these words. A Response has a status instead.
    SGLang and vLLM return `abort` for an aborted generation, which clients can distinguish from an answer.
    """
    if x.turn is None:
        return
    words = words_of(x)
    reason, calls, where, end = x.turn.finish_reason, bool(x.turn.tool_calls), words.end_place, words.end_member
    shown, called = words.end_value(reason), words.end_value(words.end_with_calls)
    accepted = x.expectation.finish_reasons if x.expectation is not None else ()
    if reason == ABORTED:
        yield variant(RedactableText("the server aborted the generation, and has its own {} for it", end), where=where)
        return
    if reason == "stop_sequence":
        yield variant(RedactableText("a stop string has its own {}", end), where=where)
    elif reason is not None and reason not in _REASONS:
        message = RedactableText("{} is not a value of the API", end)
        yield mismatch(message, where, quote(", ".join(words.ends.values())), shorten(reason))
    elif (reason == "length" and x.reached_stop) or (reason == "tool_calls" and x.hit_token_limit):
        template = "{} is {} and the model ended its turn" if x.reached_stop else "{} is {} and the model was cut"
        expected = words.ends_of_a_turn if x.reached_stop else words.end_value("length")
        yield mismatch(RedactableText(template, end, shown), where, expected, shown)
    if reason is None:
        has_calls = calls or (x.expected_output is not None and bool(x.expected_output.calls))
        expected = called if has_calls else words.end_value("stop", "length")
        yield mismatch(RedactableText("the answer has no {}", end), where, expected, "nothing")
    elif reason == "tool_calls" and not calls:
        message = RedactableText("{} is {} and there is no call", end, shown)
        yield mismatch(message, where, words.end_value("stop"), shown)
    elif calls and reason == "stop":
        if isinstance(value_at(x.chat_request, "tool_choice"), dict):
            yield variant(RedactableText("{} is {} with the call that the request named", end, shown), where=where)
        else:
            yield mismatch(RedactableText("calls are returned and {} is {}", end, shown), where, called, shown)
    elif accepted and reason not in accepted and calls == ("tool_calls" in accepted):
        message = RedactableText("{} does not match what the model wrote", end)
        yield mismatch(message, where, words.end_value(*accepted), shown)


@condition
def wants_one_call(x: Exchange) -> bool:
    """answers with a call to requests with `parallel_tool_calls: false`"""
    return on.called_a_tool.holds(x) and value_at(x.chat_request, "parallel_tool_calls") is False


@check(MUST, spec="chat#parallel-tool-calls", when=(on.is_conversation, on.is_complete_answer, wants_one_call))
def one_at_a_time(x: Exchange) -> Iterator[Finding]:
    """A request with `parallel_tool_calls: false` gets one call at most.

    A client that runs only one call leaves the others without results, and the next request is refused (defects O12, M15).
    """
    calls = [call for call in x.turn.tool_calls if call.name] if x.turn is not None else []
    if len(calls) > 1:
        message = "several calls are returned although the request wants one at a time"
        yield mismatch(message, "/tool_calls", "one call", quote(", ".join(shorten(call.name) for call in calls)))


@check(
    MUST,
    spec="chat#strict-call",
    when=(on.is_conversation, on.is_complete_answer, on.called_a_tool, on.offered_tools, was_not_cut),
)
def arguments_fit_the_schema(x: Exchange) -> Iterator[Finding]:
    """The arguments of a `strict` function are valid under its schema; those of other functions are the model's choice.

    The schemas demand values that no model would choose, so that any weights show it (defect V23). Without `strict` the API promises nothing. Invalid
    arguments are then a variant if their author is unknown, and ignored if the model wrote them. OpenAI does not promise it for several calls either.
    """
    written = {call.arguments for call in x.expected_output.calls} if x.expected_output is not None else set[str]()
    calls = x.turn.tool_calls if x.turn is not None else ()
    for index, call in enumerate(calls):
        functions = (value_at(tool, "function") for tool in x.tools)
        declared = next((one for one in functions if value_at(one, "name") == call.name), None)
        violation = _violation(call.arguments, value_at(declared, "parameters"))
        is_strict = value_at(declared, "strict") is True
        is_its_own = any(call.arguments == own or is_same_object(x, call.arguments, own) for own in written)
        if violation is None or (is_its_own and not is_strict) or (is_strict and x.script is not None):
            continue
        where = pointer("tool_calls", index, "function", "arguments") + violation[0]
        if is_strict and (len(calls) == 1 or value_at(x.chat_request, "parallel_tool_calls") is False):
            message = "the arguments of a strict function violate its schema"
            yield mismatch(message, where, "a value of the schema", shorten(violation[1]))
        else:
            yield variant("the arguments violate the function's schema", where=where)


def _violation(arguments: str, schema: Json) -> tuple[str, str] | None:
    """Return the path and the reason of the first violation of a schema. None if the arguments are valid, or the schema is missing."""
    if schema is None:
        return None
    try:
        return first_violation(loads(arguments), schema)
    except InvalidJsonError as problem:
        return "", f"invalid JSON: {problem}"


@condition
def calls_again(x: Exchange) -> bool:
    """answers with a call to requests whose history contains calls"""
    return on.called_a_tool.holds(x) and bool(_known_ids(x))


def _known_ids(x: Exchange) -> frozenset[str]:
    calls = (call for message in x.messages for call in items(value_at(message, "tool_calls")))
    return frozenset(name for call in calls if (name := text(value_at(call, "id"))))


@check(MUST, spec="chat#tool-call-id", when=(on.is_conversation, calls_again))
def id_is_new(x: Exchange) -> Iterator[Finding]:
    """The id of a call differs from the ids of earlier calls of the conversation.

    Results name their call by its id: if each answer counts from 0 again, results are ambiguous.
    """
    known = _known_ids(x)
    for index, call in enumerate(x.turn.tool_calls if x.turn is not None else ()):
        if call.id in known:
            message = "a call has the id of an earlier call"
            yield mismatch(message, pointer("tool_calls", index, "id"), "a new id", shorten(call.id or ""))
