"""Family `prompt`: the server feeds the model the client's messages, as Harmony messages. Needs the prompt's token ids."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import LiteralString

from harmony_conformance.apis.json_equality import equal_as_doubles, equal_json, has_added_fractions
from harmony_conformance.checks.helpers.closed_schemas import is_closed_in_prompt
from harmony_conformance.checks.helpers.counted_pairs import counted_pairs, token_difference
from harmony_conformance.checks.helpers.fitting_clauses import ARGUMENTS, clause_of_counted_text, clause_of_difference
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.rendering import content_placement as placement
from harmony_conformance.checks.rendering.accepted_renderings import has_predictable_prompt
from harmony_conformance.checks.rendering.prompt_diff import compare_with_nearest, has_renamed_reasoning_field
from harmony_conformance.checks.rendering.tool_schemas import find_missing_descriptions
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import members, pointer, strings, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge import history_conditions as history
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, cited, comparison, mismatch, ruled, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.judge.rulings import NEIGHBOURING_MESSAGES, NUMBERS_IN_OBJECTS, ORPHAN_RESULTS, QUOTED_RESULTS
from harmony_conformance.prompts.declarations_in_prompt import (
    as_identifier,
    declared_functions,
    is_same_function,
    official_tools_text,
    parse_declarations,
)
from harmony_conformance.prompts.expected_parts import PartKind, PromptMessage, PromptPart, RecipientPosition, Retention
from harmony_conformance.prompts.request_members import is_offered
from harmony_conformance.prompts.token_injection import SPECIAL_TOKEN, find_injection
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_ref.explanation import Part


def _parts(x: Exchange, *kinds: PartKind) -> tuple[PromptPart, ...]:
    return tuple(part for part in x.expected_parts if part.kind in kinds)


def _messages(x: Exchange, role: str, channel: str | None = None) -> list[PromptMessage]:
    return [m for m in x.prompt_messages if m.role == role and (channel is None or m.channel == channel)]


_SHOWN_IN_ORDER = (on.is_conversation, on.prompt_is_known, history.has_allowed_order)


@check(MUST, spec="harmony#roles", when=(*_SHOWN_IN_ORDER, history.has_user_message, history.has_full_history))
def user_text_is_whole(x: Exchange) -> Iterator[Finding]:
    """Each user message is in the prompt once, in order, under the role user, character for character; parts of a content are joined.

    No source defines the separator of parts: the official library joins them without one. White space, as in llama.cpp and SGLang, is a variant.
    """
    shown, sent = _messages(x, "user"), _parts(x, PartKind.USER)
    parts = placement.join_lines_as_in_prompt(x.chat_request, sent, shown)
    yield from placement.find_joined_lines(sent, parts)
    are_joined = placement.are_joined(parts, shown)
    for finding in placement.find_changed_contents(parts, shown):
        yield ruled(finding, NEIGHBOURING_MESSAGES) if are_joined else finding


@check(MUST, spec="harmony#final", when=(on.is_conversation, on.prompt_is_known, history.has_earlier_answer))
def earlier_answers_are_final(x: Exchange) -> Iterator[Finding]:
    """Earlier answers are in the prompt as assistant messages on the final channel, unchanged (defect V17)."""
    shown, sent = _messages(x, "assistant", "final"), _parts(x, PartKind.FINAL)
    shown = [m for m in shown if m.recipient is None and m.content]
    parts = placement.join_lines_as_in_prompt(x.chat_request, sent, shown)
    yield from placement.find_joined_lines(sent, parts)
    yield from placement.find_changed_contents(parts, shown)


@check(MUST, spec="harmony#preambles", when=(on.is_conversation, on.prompt_is_known, history.has_preamble_history))
def preamble_is_kept(x: Exchange) -> Iterator[Finding]:
    """Content next to a function call is in the prompt, before the call, on the commentary channel.

    Templates that refuse or erase it lose text that the user has seen; some write it as analysis (defects L04, V17).
    """
    messages = _messages(x, "assistant")
    parts = _parts(x, PartKind.PREAMBLE, PartKind.CALL)
    position = 0
    for number, part in enumerate(parts):
        call = placement.place_of_next_call(parts[number:], messages, position)
        if part.kind is PartKind.CALL:
            position = position if call is None else call + 1
            continue
        before = messages[position:call]
        preamble = next((m for m in before if m.content == part.text and m.channel in ("commentary", "analysis")), None)
        if preamble is None:
            message = "the preamble of a call is not in the prompt before it"
            actual = shorten(str(before[-1])) if before else "no message before the call"
            yield mismatch(message, part.where, RedactableText("assistant, commentary: {}", shorten(part.text)), actual)
        else:
            position += before.index(preamble) + 1
            if preamble.channel != "commentary":
                yield variant("the preamble of a call is on the analysis channel", where=part.where)


@check(MUST, spec="harmony#receiving-calls", when=(on.is_conversation, on.prompt_is_known, history.has_call_history))
def calls_are_rendered(x: Exchange) -> Iterator[Finding]:
    r"""Each earlier call is in the prompt once: to its function, with its arguments encoded once.

    Arguments that are quoted again (`"{\"a\":1}"`) teach the model to write such arguments (defects J01, V17, T02).
    """
    calls = [m for m in _messages(x, "assistant") if m.recipient is not None]
    parts = _parts(x, PartKind.CALL)
    rest = iter(calls)
    for part in parts:
        message = next((m for m in rest if is_same_function(part.function, m.function)), None)
        if message is None:
            missing = RedactableText("the call of {} is not in the prompt", part.function)
            yield mismatch(missing, part.where, RedactableText("to=functions.{}", part.function), "no such message")
            return
        yield from _another_name(part, message)
        if message.channel == "analysis":
            on_analysis = RedactableText("the call of {} is on the analysis channel", part.function)
            yield variant(on_analysis, where=part.where)
        elif message.channel != "commentary":
            elsewhere = RedactableText("the call of {} is not on the commentary channel", part.function)
            yield mismatch(elsewhere, part.where, "commentary", quote(message.channel or "no channel"))
        if message.content == part.text:
            continue
        if equal_json(message.content, part.text) and not has_added_fractions(part.text, message.content):
            yield variant("the arguments of a call were rewritten: equal as JSON", where=part.where)
        else:
            finding = _content_mismatch("the arguments of a call are not what was sent", part, message)
            is_rounded = not equal_json(message.content, part.text) and equal_as_doubles(message.content, part.text)
            is_rounded = is_rounded and not x.api_adapter.has_text_arguments
            yield cited(ruled(finding, NUMBERS_IN_OBJECTS) if is_rounded else finding, ARGUMENTS)
    yield from placement.find_surplus_messages(parts, calls)


def _another_name(part: PromptPart, message: PromptMessage) -> Iterator[Finding]:
    if part.function not in (None, message.function):
        problem = RedactableText("{} is called {} in the prompt", part.function, message.function)
        yield variant(problem, where=part.where)


def _content_mismatch(problem: LiteralString, part: PromptPart, message: PromptMessage) -> Finding:
    expected, actual = text_difference(part.text, message.content)
    return mismatch(problem, part.where, expected, actual)


@check(MUST, spec="harmony#tool-messages", when=(on.is_conversation, on.prompt_is_known, history.has_results))
def results_are_rendered(x: Exchange) -> Iterator[Finding]:
    """Each function result is in the prompt once, raw, from its function, to the assistant, on the commentary channel or none (defects J02, V17, T02)."""
    results, sent = _messages(x, "tool"), _parts(x, PartKind.RESULT)
    parts = placement.join_lines_as_in_prompt(x.chat_request, sent, results)
    yield from placement.find_joined_lines(sent, parts)
    for part, message in zip_longest(parts, results[: len(parts)]):
        if message is None:
            lost = mismatch("a function result is not in the prompt", part.where, shorten(part.text), "no such message")
            yield lost if part.function is not None else ruled(lost, ORPHAN_RESULTS)
            return
        if part.function is not None and not is_same_function(part.function, message.function):
            problem = "a function result is under another name"
            yield mismatch(problem, part.where, RedactableText("functions.{}", part.function), quote(message.name))
        else:
            yield from _another_name(part, message)
        yield from placement.find_wrong_address(part, message)
        if message.content != part.text and placement.quoted_text(message.content) == part.text:
            quoted = _content_mismatch("a function result is quoted as a JSON string", part, message)
            yield ruled(quoted, QUOTED_RESULTS)
        elif message.content != part.text:
            yield _content_mismatch("a function result is not what was sent", part, message)
    yield from placement.find_surplus_messages(parts, results)


@check(MUST, spec="harmony#tools", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def tools_are_declared(x: Exchange) -> Iterator[Finding]:
    """Every offered function is declared in the prompt: `type NAME = …` in `namespace functions`, with its description and its parameters.

    The model cannot call a function that the prompt omits, and guesses details that its declaration omits (defects M14, T03).
    """
    declared, official = declared_functions(x.prompt_messages), official_tools_text(x.tools)
    by_library = parse_declarations(official)
    for index, tool in enumerate(x.tools):
        name = text(value_at(tool, "function", "name"))
        if not name or SPECIAL_TOKEN.search(name):  # markers in a name are about another check
            continue
        where, declaration = pointer("tools", index), declared.get(name) or declared.get(as_identifier(name))
        if declaration is None:
            if is_offered(x.chat_request, name):
                problem = RedactableText("the function {} is not declared in the prompt", name)
                yield mismatch(problem, where, RedactableText("type {} = (_: …) => any;", name), "no such line")
            else:
                yield variant(RedactableText("{}, which may not be called, is not declared", name), where=where)
            continue
        if declaration.name != name:
            yield variant(RedactableText("{} is declared as {}", name, declaration.name), where=where)
        library = by_library.get(name)
        if library is not None:
            function, where = value_at(tool, "function"), pointer("tools", index, "function")
            yield from find_missing_descriptions(function, declaration, library, where)
    if official and not any(official in message.content for message in x.prompt_messages):
        yield variant("the tools are spelled differently than by the official library", where="# Tools")


@condition
def offered_functions(x: Exchange) -> bool:
    """requests that declare functions and do not forbid calls"""
    return on.offered_tools.holds(x) and any(text(value_at(tool, "function", "name")) for tool in x.tools)


@check(SHOULD, spec="harmony#tools", when=(on.is_conversation, on.prompt_is_known, offered_functions))
def calls_are_sent_to_commentary(x: Exchange) -> Iterator[Finding]:
    """With functions, the system message directs calls to them to the commentary channel."""
    note = "Calls to these tools must go to the commentary channel: 'functions'."
    if not any(note in m.content for m in _messages(x, "system")):
        yield mismatch("the system message lacks the note on function calls", "system message", note, "no such line")


@check(MUST, spec="harmony#message-format", when=(on.is_conversation, on.prompt_is_known, history.has_full_history))
def is_a_list_of_messages(x: Exchange) -> Iterator[Finding]:
    """The prompt is the conversation in its order as Harmony messages and nothing else: the system message first, all closed (defects J11, M04, V31)."""
    if x.parsed_prompt is None:
        return
    for piece in x.parsed_prompt.unparsed_tokens:
        yield mismatch("there are tokens between the messages of the prompt", "prompt", "messages only", shorten(piece))
    messages = x.parsed_prompt.messages
    for index, message in enumerate(messages):
        where = f"prompt message {index}"
        if message.special_count:
            yield mismatch("a special token is inside a message's content", where, "text", shorten(message.content))
        if message.end is None and (message is not messages[-1] or on.requests_new_message.holds(x)):
            yield mismatch("a message of the prompt is not closed", where, "⟦end⟧", shorten(str(message)))
    roles = [m.role for m in messages]
    if roles[:1] != ["system"] or roles.count("system") > 1:
        problem = "the prompt has no system message at its beginning, or more than one"
        yield mismatch(problem, "prompt", "one, first", quote(", ".join(roles)) or "no message")
    yield from placement.find_conversation_faults(x.expected_parts, messages)


@check(MUST, spec="harmony#prompt-end", when=(on.is_conversation, on.prompt_is_known, on.requests_new_message))
def ends_with_the_assistant(x: Exchange) -> Iterator[Finding]:
    """The prompt ends with `<|start|>assistant`, so that the model itself chooses the channel (defect O07)."""
    if x.parsed_prompt is not None and x.parsed_prompt.generation_prompt != "⟦start⟧assistant":
        message = "the prompt does not end with the beginning of an assistant message"
        actual = shorten(x.parsed_prompt.generation_prompt) or "nothing"
        yield mismatch(message, "end of the prompt", "⟦start⟧assistant", actual)


@condition
def has_two_headers_of_a_kind(x: Exchange) -> bool:
    """prompts with two messages that have a recipient"""
    return len([m for m in x.prompt_messages if m.recipient is not None]) > 1


@check(MUST, spec="harmony#receiving-calls", when=(on.is_conversation, on.prompt_is_known, has_two_headers_of_a_kind))
def one_header_form(x: Exchange) -> Iterator[Finding]:
    """All calls of a prompt have one form: the recipient before the channel or after it, one content type; results likewise.

    A model that sees two forms writes a third (defect V05).
    """
    for role in ("assistant", "tool"):
        addressed = [m for m in _messages(x, role) if m.recipient is not None]
        forms = {f"{m.recipient_position}, {m.content_type or 'no content type'}" for m in addressed}
        if len(forms) > 1:
            message = f"headers of the same kind ({role}) have two forms in one prompt"
            yield mismatch(message, "prompt", "one form", quote(" and ".join(sorted(forms))))


@check(
    SHOULD,
    spec="harmony#tool-messages",
    when=(on.is_conversation, on.prompt_is_known, history.has_call_history, history.has_results),
)
def calls_and_results_agree_in_form(x: Exchange) -> Iterator[Finding]:
    """Results have the form of the guide: their channel, and the recipient before it; or behind it, if the calls have it there too.

    The guide itself writes `to=` behind the channel in calls, and before it in results (defect V20).
    """
    results = [m for m in _messages(x, "tool") if m.recipient is not None]
    if unmarked := [m.header for m in results if m.channel is None]:
        yield mismatch("a result has no channel", "prompt", "⟦channel⟧commentary", quote(unmarked[0]))
    calls = {m.recipient_position for m in _messages(x, "assistant")} - {RecipientPosition.NONE}
    if calls == {RecipientPosition.ROLE} and {m.recipient_position for m in results} == {RecipientPosition.CHANNEL}:
        expected, actual = "recipient before the channel, as in calls", "recipient after the channel"
        yield mismatch("calls and results have different header forms", "prompt", expected, actual)


@condition
def quotes_markers(x: Exchange) -> bool:
    """requests with special tokens spelled as text"""
    return any(map(SPECIAL_TOKEN.search, (*_required_texts(x), *_optional_texts(x))))


def _required_texts(x: Exchange) -> Iterator[str]:
    """Yield the texts of a request that have to be in the prompt: of messages, and of declared tools."""
    yield from (part.text for part in x.expected_parts if part.retention is Retention.PRESENT)
    if on.offered_tools.holds(x):
        yield from (word for tool in x.tools for word in strings(tool))


def _optional_texts(x: Exchange) -> Iterator[str]:
    """Yield the texts of a request that a server may leave out of the prompt.

    These are authors' names, reasoning, the effort, names of parameters, and the answer's schema.
    """
    yield from (text(value_at(message, "name")) for message in x.messages)
    yield from (part.text for part in x.expected_parts if part.retention is not Retention.PRESENT)
    yield text(value_at(x.chat_request, "reasoning_effort"))
    yield from strings(value_at(x.chat_request, "response_format"))
    yield from (name for tool in x.tools for name in members(value_at(tool, "function", "parameters", "properties")))


@check(MUST, spec="harmony#special-tokens", when=(on.is_conversation, on.prompt_is_known, quotes_markers))
def markers_in_text_stay_text(x: Exchange) -> Iterator[Finding]:
    """Markers in a client's texts are fed as ordinary text, never as special tokens.

    Otherwise any user, and any web page that a tool returns, can write system messages (defects J11, L08).
    """
    ids = x.prompt.ids or ()
    injection = find_injection(ids, _required_texts(x))
    optional = _optional_texts(x)
    injection = injection or find_injection(ids, optional, min_context=_MIN_IDENTIFYING_LENGTH)
    if injection is not None:
        message = "text of the request became special tokens in the prompt"
        yield mismatch(message, "prompt", shorten(injection.text), shorten(injection.prompt_excerpt))


_MIN_IDENTIFYING_LENGTH = 11  # characters that identify a text that may be left out: more than any word of a header has


@condition
def has_known_parts_only(x: Exchange) -> bool:
    """requests of texts, function calls and functions, whose place in a prompt is known"""
    return has_predictable_prompt(x.chat_request)


@check(SHOULD, spec="harmony#message-format", when=(*_SHOWN_IN_ORDER, has_known_parts_only))
def is_an_accepted_rendering(x: Exchange) -> Iterator[Finding]:
    """The prompt is an accepted rendering of the request's conversation: in a known style, with no part lost, changed, added or moved.

    A finding shows the smallest difference from the nearest rendering: message, part, and the tokens of both sides. Other checks judge the guide's rules
    for each part. This one also detects differences that they ignore, such as functions in another order (defects J01, J02, V17). A server's own choice of
    date, cutoff, channels, header form, line ends and spelling of types is a variant.
    """
    if x.parsed_prompt is None:
        return
    compared = compare_with_nearest(x.chat_request, x.prompt.ids or (), x.parsed_prompt)
    if compared is None:
        return
    closed = Part.RESPONSE_FORMATS if is_closed_in_prompt(x) else None
    failures = [
        one
        for one in compared.failures
        if one.difference.part is not closed and (not has_renamed_reasoning_field(x, one.where) or one.actual)
    ]
    if failures:
        first, *others = failures
        more = RedactableText("; and {} more", len(others)) if others else RedactableText("")
        message = RedactableText("{}{}", first.sentence, more)
        where = first.where or f"prompt message {first.message_index}"
        yield cited(mismatch(message, where, first.tokens[0], first.tokens[1]), clause_of_difference(first.difference))
    elif compared.differences or compared.notes:
        summaries = [*compared.notes, *dict.fromkeys(one.summary for one in compared.differences)]
        expected, actual = compared.differences[0].tokens if compared.differences else (None, None)
        where = f"nearest to {compared.style}"
        yield variant(quote("; ".join(summaries)), where=where, expected=expected, actual=actual)


@series_only
@evidence
def has_counted_pair(series: Series) -> bool:
    """pairs of requests whose prompts are counted and differ in one text"""
    return any(True for _ in counted_pairs(series))


@comparison(MUST, spec="harmony#special-tokens", when=has_counted_pair)
def text_costs_its_tokens(series: Series) -> Iterator[Finding]:
    """Two requests that differ in one text differ in prompt_tokens by the number of ordinary tokens of that text.

    Works on a black box, since preambles of the provider cancel out. A marker that became a special token costs 1 instead of 5. A dropped message costs
    nothing, and a quoted result also costs its quotes (defects J11, L08, J05, J02).
    """
    template = "the prompt of {} has {} than that of {}"
    for pair in counted_pairs(series):
        if pair.prompt_growth != pair.expected_growth and not pair.is_explained_by_headers:
            if pair.prompt_growth == pair.escaped_growth:
                yield variant("the arguments are the same JSON, with escaped characters", where="/usage/prompt_tokens")
                continue
            actual = token_difference(pair.prompt_growth)
            message = RedactableText(template, pair.longer.step, actual, pair.shorter.step)
            finding = mismatch(message, "/usage/prompt_tokens", pair.expected_in_words, actual, exchange=pair.longer.id)
            finding = cited(finding, clause_of_counted_text(pair))
            yield ruled(finding, QUOTED_RESULTS) if pair.prompt_growth == pair.quoted_growth else finding
