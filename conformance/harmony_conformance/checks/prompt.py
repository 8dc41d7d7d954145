"""Family `prompt`: what the server fed the model is what the client sent, as Harmony messages. Needs the prompt's token ids."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from harmony_conformance.checks.helpers.counted_pairs import counted_pairs
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.rendering.accepted_renderings import is_readable
from harmony_conformance.checks.rendering.content_placement import (
    conversation_alone,
    no_more,
    on_lines,
    place_of_next_call,
    raw,
    to_the_assistant,
    told_on_lines,
)
from harmony_conformance.checks.rendering.prompt_diff import PromptDifference, is_under_another_name, nearest
from harmony_conformance.checks.rendering.tool_schemas import undescribed
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import at, equal_json, pointer, spells_fractions, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import (
    MUST,
    SHOULD,
    Finding,
    check,
    comparison,
    condition,
    evidence,
    series_only,
    variant,
)
from harmony_conformance.judge.history_conditions import (
    has_call_history,
    has_earlier_answer,
    has_preamble_history,
    has_results,
    has_user_message,
    says_all,
)
from harmony_conformance.prompts.chat_request import may_be_called
from harmony_conformance.prompts.prompt_parser import PartKind, PromptMessage, PromptPart, RecipientPosition
from harmony_conformance.prompts.token_injection import injected
from harmony_conformance.prompts.tool_declarations import (
    as_identifier,
    declarations,
    declarations_in,
    is_same_function,
    official_spelling,
)
from harmony_conformance.redactable_text import RedactableText, quote, shorten


def _parts(x: Exchange, *kinds: PartKind) -> tuple[PromptPart, ...]:
    return tuple(part for part in x.expected_parts if part.kind in kinds)


def _messages(x: Exchange, role: str, channel: str | None = None) -> list[PromptMessage]:
    return [m for m in x.prompt_messages if m.role == role and (channel is None or m.channel == channel)]


@check(MUST, spec="harmony#roles", when=(on.is_conversation, on.prompt_is_known, has_user_message, says_all))
def user_text_is_whole(x: Exchange) -> Iterator[Finding]:
    """Each user message stands in the prompt once, in order, under the role user, character for character; parts of a content are joined.

    No source says what stands between parts: nothing, as in the official library, or a line end, as llama.cpp writes it, which is a variant.
    """
    shown, sent = _messages(x, "user"), _parts(x, PartKind.USER)
    parts = on_lines(x.chat_request, sent, shown)
    yield from told_on_lines(sent, parts)
    yield from raw(parts, shown)


@check(MUST, spec="harmony#final", when=(on.is_conversation, on.prompt_is_known, has_earlier_answer))
def earlier_answers_are_final(x: Exchange) -> Iterator[Finding]:
    """Earlier answers stand in the prompt as assistant messages on the final channel, unchanged (defect V17)."""
    shown = [m for m in _messages(x, "assistant", "final") if m.recipient is None and m.content]
    parts = on_lines(x.chat_request, _parts(x, PartKind.FINAL), shown)
    yield from told_on_lines(_parts(x, PartKind.FINAL), parts)
    yield from raw(parts, shown)


@check(MUST, spec="harmony#preambles", when=(on.is_conversation, on.prompt_is_known, has_preamble_history))
def preamble_is_kept(x: Exchange) -> Iterator[Finding]:
    """Content next to a function call is in the prompt, before the call, on the commentary channel.

    Templates that refuse or erase it lose what the user was told; some write it as analysis (defects L04, V17).
    """
    said = _messages(x, "assistant")
    parts = _parts(x, PartKind.PREAMBLE, PartKind.CALL)
    position = 0
    for number, part in enumerate(parts):
        called = place_of_next_call(parts[number:], said, position)
        if part.kind is PartKind.CALL:
            position = position if called is None else called + 1
            continue
        before = said[position:called]
        held = next((m for m in before if m.content == part.text and m.channel in ("commentary", "analysis")), None)
        if held is None:
            yield Finding(
                message="the preamble of a call is not in the prompt before it",
                at=part.where,
                expected=RedactableText("assistant, commentary: {}", shorten(part.text)),
                actual=shorten(str(before[-1])) if before else "no message before the call",
            )
        else:
            position += before.index(held) + 1
            if held.channel != "commentary":
                yield variant("the preamble of a call stands on the analysis channel", where=part.where)


@check(MUST, spec="harmony#receiving-calls", when=(on.is_conversation, on.prompt_is_known, has_call_history))
def calls_are_rendered(x: Exchange) -> Iterator[Finding]:
    r"""Each earlier call stands in the prompt once: to its function, with its arguments encoded once.

    Arguments that are quoted again (`"{\"a\":1}"`) teach the model to answer so (defects J01, V17, T02).
    """
    calls = [m for m in _messages(x, "assistant") if m.recipient is not None]
    parts = _parts(x, PartKind.CALL)
    rest = iter(calls)
    for part in parts:
        message = next((m for m in rest if is_same_function(part.function, m.function)), None)
        if message is None:
            yield Finding(
                message=RedactableText("the call of {} is not in the prompt", part.function),
                at=part.where,
                expected=RedactableText("to=functions.{}", part.function),
                actual="no such message",
            )
            return
        if message.function != part.function:
            yield variant(
                RedactableText("{} is called {} in the prompt", part.function, message.function), where=part.where
            )
        if message.channel == "analysis":
            yield variant(
                RedactableText("the call of {} stands on the analysis channel", part.function), where=part.where
            )
        elif message.channel != "commentary":
            yield Finding(
                message=RedactableText("the call of {} is not on the commentary channel", part.function),
                at=part.where,
                expected="commentary",
                actual=quote(message.channel or "no channel"),
            )
        yield from _arguments(part, message.content)
    yield from no_more(parts, calls)


def _arguments(part: PromptPart, shown: str) -> Iterator[Finding]:
    if shown == part.text:
        return
    if equal_json(shown, part.text) and not spells_fractions(part.text, shown):
        yield variant("the arguments of a call were written anew: equal as JSON", where=part.where)
    else:
        expected, actual = text_difference(part.text, shown)
        yield Finding(
            message="the arguments of a call are not what was sent", at=part.where, expected=expected, actual=actual
        )


@check(MUST, spec="harmony#tool-messages", when=(on.is_conversation, on.prompt_is_known, has_results))
def results_are_rendered(x: Exchange) -> Iterator[Finding]:
    """Each function result stands in the prompt once, raw, from its function, to the assistant, on the commentary channel or none (defects J02, V17, T02)."""
    results = _messages(x, "tool")
    parts = on_lines(x.chat_request, _parts(x, PartKind.RESULT), results)
    yield from told_on_lines(_parts(x, PartKind.RESULT), parts)
    for part, message in zip_longest(parts, results[: len(parts)]):
        if message is None:
            yield Finding(
                message="a function result is not in the prompt",
                at=part.where,
                expected=shorten(part.text),
                actual="no such message",
            )
            return
        if part.function is not None and not is_same_function(part.function, message.function):
            yield Finding(
                message="a function result stands under another name",
                at=part.where,
                expected=RedactableText("functions.{}", part.function),
                actual=quote(message.name),
            )
        elif part.function not in (None, message.function):
            yield variant(
                RedactableText("{} is called {} in the prompt", part.function, message.function), where=part.where
            )
        yield from to_the_assistant(part, message)
        if message.content != part.text:
            expected, actual = text_difference(part.text, message.content)
            yield Finding(
                message="a function result is not what was sent", at=part.where, expected=expected, actual=actual
            )
    yield from no_more(parts, results)


@check(MUST, spec="harmony#tools", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def tools_are_declared(x: Exchange) -> Iterator[Finding]:
    """Every offered function is declared in the prompt: `type NAME = …` in `namespace functions`, with its description and its parameters.

    A model can not call what it was not told of, and guesses what it was not told about it (defects M14, T03).
    """
    held = x.prompt_messages
    declared, official = declarations(held), official_spelling(x.tools)
    by_library = declarations_in(official)
    for index, tool in enumerate(x.tools):
        name = text(at(tool, "function", "name"))
        if not name:
            continue
        found = declared.get(name) or declared.get(as_identifier(name))
        if found is None and not may_be_called(x.chat_request, name):
            yield variant(
                RedactableText("{}, which may not be called, is not declared", name), where=pointer("tools", index)
            )
            continue
        if found is None:
            yield Finding(
                message=RedactableText("the function {} is not declared in the prompt", name),
                at=pointer("tools", index),
                expected=RedactableText("type {} = (_: …) => any;", name),
                actual="no such line",
            )
            continue
        if found.name != name:
            yield variant(RedactableText("{} is declared as {}", name, found.name), where=pointer("tools", index))
        library = by_library.get(name)
        if library is not None:
            yield from undescribed(at(tool, "function"), found, library, pointer("tools", index, "function"))
    if official and not any(official in message.content for message in held):
        yield variant("the tools are spelled otherwise than by the official library", where="# Tools")


@check(SHOULD, spec="harmony#tools", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def calls_are_sent_to_commentary(x: Exchange) -> Iterator[Finding]:
    """With functions, the system message says that calls to them go to the commentary channel."""
    note = "Calls to these tools must go to the commentary channel: 'functions'."
    if not any(note in m.content for m in _messages(x, "system")):
        yield Finding(
            message="the system message lacks the note on function calls",
            at="system message",
            expected=note,
            actual="no such line",
        )


@check(MUST, spec="harmony#message-format", when=(on.is_conversation, on.prompt_is_known, says_all))
def is_a_list_of_messages(x: Exchange) -> Iterator[Finding]:
    """The prompt is the conversation in its order as Harmony messages and nothing else: the system message first, all closed (defects J11, M04, V31)."""
    if x.parsed_prompt is None:
        return
    for piece in x.parsed_prompt.unparsed_tokens:
        yield Finding(
            message="tokens stand between the messages of the prompt",
            at="prompt",
            expected="messages only",
            actual=shorten(piece),
        )
    messages = x.parsed_prompt.messages
    for index, message in enumerate(messages):
        where = f"prompt message {index}"
        if message.specials:
            yield Finding(
                message="a special token stands inside a message's content",
                at=where,
                expected="text",
                actual=shorten(message.content),
            )
        if message.end is None and (message is not messages[-1] or on.ends_for_an_answer.holds(x)):
            yield Finding(
                message="a message of the prompt is not closed",
                at=where,
                expected="⟦end⟧",
                actual=shorten(str(message)),
            )
    roles = [m.role for m in messages]
    if roles[:1] != ["system"] or roles.count("system") > 1:
        yield Finding(
            message="the prompt does not begin with the one system message",
            at="prompt",
            expected="one, first",
            actual=quote(", ".join(roles)) or "no message",
        )
    yield from conversation_alone(x.expected_parts, messages)


@check(MUST, spec="harmony#prompt-end", when=(on.is_conversation, on.prompt_is_known, on.ends_for_an_answer))
def ends_with_the_assistant(x: Exchange) -> Iterator[Finding]:
    """The prompt ends with `<|start|>assistant`, so that the model itself chooses the channel (defect O07)."""
    if x.parsed_prompt is not None and x.parsed_prompt.generation_prompt != "⟦start⟧assistant":
        yield Finding(
            message="the prompt does not end with the beginning of an assistant message",
            at="end of the prompt",
            expected="⟦start⟧assistant",
            actual=shorten(x.parsed_prompt.generation_prompt) or "nothing",
        )


@condition
def has_two_headers_of_a_kind(x: Exchange) -> bool:
    """prompts with two messages that have a recipient"""
    return len([m for m in x.prompt_messages if m.recipient is not None]) > 1


@check(MUST, spec="harmony#receiving-calls", when=(on.is_conversation, on.prompt_is_known, has_two_headers_of_a_kind))
def one_header_form(x: Exchange) -> Iterator[Finding]:
    """All calls of a prompt have one form: the recipient before the channel or after it, one content type; results likewise.

    A model that is shown two forms writes a third (defect V05).
    """
    for role in ("assistant", "tool"):
        addressed = [m for m in _messages(x, role) if m.recipient is not None]
        forms = {f"{m.recipient_position}, {m.content_type or 'no content type'}" for m in addressed}
        if len(forms) > 1:
            yield Finding(
                message=f"headers of the same kind ({role}) have two forms in one prompt",
                at="prompt",
                expected="one form",
                actual=quote(" and ".join(sorted(forms))),
            )


@check(
    SHOULD,
    spec="harmony#receiving-calls",
    when=(on.is_conversation, on.prompt_is_known, has_call_history, has_results),
)
def calls_and_results_agree_in_form(x: Exchange) -> Iterator[Finding]:
    """Calls and results name the recipient in the same place (defect V20)."""
    calls = {
        m.recipient_position for m in _messages(x, "assistant") if m.recipient_position is not RecipientPosition.NONE
    }
    results = {m.recipient_position for m in _messages(x, "tool") if m.recipient_position is not RecipientPosition.NONE}
    if len(calls) == 1 and len(results) == 1 and calls != results:
        yield Finding(
            message="calls and results have different header forms",
            at="prompt",
            expected=RedactableText("calls and results: {}", calls.pop()),
            actual=RedactableText("results: {}", results.pop()),
        )


@check(MUST, spec="harmony#special-tokens", when=(on.is_conversation, on.prompt_is_known, on.quotes_markers))
def markers_in_text_stay_text(x: Exchange) -> Iterator[Finding]:
    """Markers in what a client sends are fed as ordinary text, never as special tokens.

    Otherwise any user can write system messages, and any web page that a tool returns (defects J11, L08).
    """
    ids = x.prompt.ids or ()
    found = injected(ids, on.texts_that_stay(x)) or injected(ids, on.texts_that_may_stay(x), own=_OWN)
    if found is not None:
        yield Finding(
            message="text of the request became special tokens in the prompt",
            at="prompt",
            expected=shorten(found.text),
            actual=shorten(found.shown),
        )


_OWN = 11  # characters by which a text that may be left out is recognised: longer than any word of a header


@condition
def asks_what_is_known(x: Exchange) -> bool:
    """requests of texts, function calls and functions, whose place in a prompt is known"""
    return is_readable(x.chat_request)


@check(SHOULD, spec="harmony#message-format", when=(on.is_conversation, on.prompt_is_known, asks_what_is_known))
def is_an_accepted_rendering(x: Exchange) -> Iterator[Finding]:
    """The prompt is one of the accepted renderings of the request's conversation: in one of the known styles, nothing of it lost, changed, added or moved.

    Tells the smallest difference from the nearest one: which message, which part of it, the tokens of both sides. What the guide demands of each part is
    judged by other checks; this one also sees what none of them looks at, such as functions in another order (defects J01, J02, V17). A server's own
    choice of date, cutoff, channels, header form, line ends and spelling of types is a variant.
    """
    compared = nearest(x.chat_request, x.prompt.ids or (), x.parsed_prompt) if x.parsed_prompt is not None else None
    if compared is None:
        return
    failures = [one for one in compared.failures if not is_under_another_name(x, one.where) or one.actual]
    if failures:
        first, *more = failures
        besides = RedactableText("; and {} more", len(more)) if more else RedactableText("")
        yield _departed(first, besides)
        return
    if compared.differences or compared.notes:
        told = [*compared.notes, *dict.fromkeys(one.summary for one in compared.differences)]
        expected, actual = compared.differences[0].tokens if compared.differences else (None, None)
        where = f"nearest to {compared.style}"
        yield variant(quote("; ".join(told)), where=where, expected=expected, actual=actual)


def _departed(found: PromptDifference, besides: RedactableText) -> Finding:
    expected, actual = found.tokens
    return Finding(
        message=RedactableText("{}{}", found.sentence, besides),
        at=found.where or f"prompt message {found.number}",
        expected=expected,
        actual=actual,
    )


@series_only
@evidence
def has_counted_pair(series: Series) -> bool:
    """pairs of requests whose prompts are counted and differ in one text"""
    return any(True for _ in counted_pairs(series))


@comparison(MUST, spec="harmony#special-tokens", when=has_counted_pair)
def text_costs_its_tokens(series: Series) -> Iterator[Finding]:
    """Two requests that differ in one text differ in prompt_tokens by what that text is in ordinary tokens.

    Works on a black box, since injected preambles cancel out: a marker that became a special token costs 1 instead of 5, a dropped message costs
    nothing, a quoted result costs its quotes (defects J11, L08, J05, J02).
    """
    for pair in counted_pairs(series):
        if pair.grown != pair.expected and not pair.is_explained_by_headers:
            yield Finding(
                message=RedactableText(
                    "between {} and {} the prompt grew by {} tokens", pair.less.step, pair.more.step, pair.grown
                ),
                at="/usage/prompt_tokens",
                expected=RedactableText("{} more tokens", pair.expected),
                actual=RedactableText("{} more tokens", pair.grown),
                exchange=pair.more.id,
            )
