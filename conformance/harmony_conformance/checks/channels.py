"""Family `channels`: text that the model wrote for the user is shown to the user, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import LiteralString

from harmony_conformance.apis.chat_completion import Usage
from harmony_conformance.apis.text_fields import FieldKind
from harmony_conformance.checks.helpers import empty_answers
from harmony_conformance.checks.helpers.added_end import with_added_end
from harmony_conformance.checks.helpers.api_words import end_of
from harmony_conformance.checks.helpers.fitting_clauses import (
    ANALYSIS,
    FORM,
    OF_FIELDS,
    clause_of_content,
    clause_of_loss,
)
from harmony_conformance.checks.helpers.malformed_output import lenient_on_malformed_output
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.structured import wrote_what_was_asked_for
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import count_output_tokens, has_texts_in_order
from harmony_conformance.evidence.leaks import by_text
from harmony_conformance.evidence.leaks.broken_characters import REPLACEMENT, asks_about_characters
from harmony_conformance.evidence.leaks.by_token_ids import parse_completion
from harmony_conformance.evidence.leaks.calls_in_text import written_calls
from harmony_conformance.evidence.leaks.repetition import find_doubled_text, find_loop, is_repetition_requested
from harmony_conformance.evidence.leaks.role_play import find_user_turn, is_dialogue_requested
from harmony_conformance.evidence.levels import OutputLevel
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, cited, mismatch, ruled, variant
from harmony_conformance.judge.condition import condition, evidence
from harmony_conformance.judge.rulings import MARKUP_IN_ERRORS
from harmony_conformance.redactable_text import Location, RedactableText, quote, shorten
from harmony_ref import encode_with_special_tokens

_DROPPED_CALL: LiteralString = "a call that the request does not allow was dropped, and nothing is shown instead"
_HEADER_TOKENS = 10  # cost of the headers and ends of an analysis and a final message, without their text


@condition
def has_text_of_the_server(x: Exchange) -> bool:
    """errors, and answered requests whose script, if any, was played"""
    return on.was_answered_as_scripted.holds(x) or (x.error is not None and on.was_sent.holds(x))


@check(MUST, spec="harmony#special-tokens", when=(on.api_parses_output, has_text_of_the_server))
def no_marker_leak(x: Exchange) -> Iterator[Finding]:
    """No Harmony marker reaches a client: not in content, reasoning, tool names, ids, arguments or any other text, spelled, escaped or cut over chunks.

    Leaks are tool names such as `f<|channel|>commentary`, raw headers in cut content, and markup in the reasoning (defects V04, V07, O01, R01, M03, P12).
    If the emitted ids are known, the same letters in ordinary tokens are content. Without the ids, a leak needs markers in the order of a header. One
    marker is enough where parsers leave it, with further signs of a leak. Markers that the request quotes, or is about, are a variant. An error that
    quotes unparsable output also shows the user a thought (llama.cpp did, until it used a separate error text).
    """
    yield from _report(x, by_text.marker_leaks(x, by_ids=not on.asks_for_raw_text.holds(x)))


@check(MUST, spec="harmony#analysis", when=(on.api_parses_output, on.was_answered_as_scripted))
def no_channel_words(x: Exchange) -> Iterator[Finding]:
    """No word of a header reaches a client without its marker: `analysisWe need…assistantfinalHello`.

    A server that decodes the output without special tokens shows the chain of thought, glued to the answer (defects T01, M07, M08, M09, M15, P09).
    """
    for finding in _report(x, by_text.word_leaks(x, by_ids=not on.asks_for_raw_text.holds(x))):
        is_shown = finding.location.endswith("content")
        yield finding if is_shown else cited(finding, FORM)


@check(MUST, spec="harmony#analysis", when=(on.api_parses_output, on.was_answered_as_scripted))
def no_reasoning_in_content(x: Exchange) -> Iterator[Finding]:
    """Reasoning is not shown as part of the answer: not in another model's tags, not repeated, not instead of the answer.

    A client shows the content to the user, whatever tags surround it. Without the emitted ids, only a thought in `<think>` or `<reasoning>`, or one that
    is word for word in both fields, is a leak.
    """
    yield from _report(x, by_text.reasoning_leaks(x, by_ids=not on.asks_for_raw_text.holds(x)))


@check(
    SHOULD,
    spec="harmony#analysis",
    when=(
        on.api_parses_output,
        on.was_answered_as_scripted,
        on.has_words_of_a_model,
        on.output_is_unknown,
        on.is_unrelated_to_harmony,
    ),
)
def no_suspected_leak(x: Exchange) -> Iterator[Finding]:
    """No lone marker, channel word, reasoning tag, call or thought is in a text that clients show.

    One marker, or one word, proves nothing: a model may write about Harmony. Nor does a call such as `functions.f({…})`, or a text that begins as a
    thought about the task, or has a sentence of the reasoning. Each is worth a look.
    """
    found = (leaks(x, by_ids=True) for leaks in (by_text.marker_leaks, by_text.word_leaks, by_text.reasoning_leaks))
    for leak in chain(*found, written_calls(x)):
        if leak.strength is by_text.Strength.SUSPECTED:
            yield Finding(message=leak.message, location=leak.where, excerpt=leak.excerpt)


def _report(x: Exchange, leaks: Iterable[by_text.Leak]) -> Iterator[Finding]:
    """Yield a failure for each proven leak, and a variant for one that the request quotes or asks for."""
    for leak in leaks:
        if leak.strength is by_text.Strength.SUSPECTED:
            continue
        if leak.strength is by_text.Strength.QUOTED or on.asks_for_raw_text.holds(x):
            message = RedactableText("{}, which the request is about or asks for", leak.message)
            yield variant(message, where=leak.where, actual=quote(leak.excerpt))
        else:
            told = with_added_end(x, leak.message, leak.excerpt)
            finding = Finding(message=told, location=leak.where, excerpt=leak.excerpt)
            yield ruled(finding, MARKUP_IN_ERRORS) if leak.where == "error" else finding


@check(MUST, spec="harmony#final", when=(on.is_complete_answer, on.output_is_known, wrote_what_was_asked_for))
def quoted_markers_arrive(x: Exchange) -> Iterator[Finding]:
    """A marker that the model spelled in ordinary tokens, in a text for the user, arrives: it is content.

    A filter that removes every `<|end|>` cuts answers about the format, and pages that are quoted.
    """
    for answer in x.answers:
        for marker in parse_completion(answer.ids).missing_markers(answer) if answer.ids is not None else ():
            message = RedactableText("the model spelled {} in ordinary tokens, and it did not arrive", marker)
            actual = shorten(answer.longest_text(FieldKind.CONTENT)) or "no content"
            yield mismatch(message, "content", quote(marker), actual)


@check(MUST, spec="harmony#final", when=(on.was_answered_as_scripted, on.output_is_known))
def characters_are_whole(x: Exchange) -> Iterator[Finding]:
    """No text contains U+FFFD if its tokens decode to whole characters.

    A character may take several tokens. Decoding tokens one by one yields U+FFFD in place of emoji and rare letters.
    """
    for answer in x.answers:
        for broken in parse_completion(answer.ids).broken_fields(answer) if answer.ids is not None else ():
            where = Location(broken.field.where)
            message = RedactableText("{} contains U+FFFD, and the tokens are whole characters", where)
            excerpt = by_text.excerpt_around(broken.field.text, broken.text)
            clause = OF_FIELDS[broken.field.kind]
            yield Finding(message=message, location=broken.field.where, excerpt=excerpt, clause=clause)


@condition
def asks_for_no_dialogue(x: Exchange) -> bool:
    """requests that are not about people who talk"""
    return not is_dialogue_requested(x)


@condition
def asks_for_whole_characters(x: Exchange) -> bool:
    """requests without U+FFFD that are not about the encoding of texts"""
    return not asks_about_characters(x)


@check(MUST, spec="harmony#roles", when=(on.api_parses_output, on.was_answered_as_scripted, on.output_is_known))
def nobody_else_speaks(x: Exchange) -> Iterator[Finding]:
    """Text that the model wrote in the name of the user, or of any role but the assistant, is not shown as its answer.

    A model that is not stopped writes the user's next question, and answers that too. The client shows all of it as one answer (defect M04).
    """
    for answer in x.answers:
        for leak in parse_completion(answer.ids).leaked_other_roles(answer) if answer.ids is not None else ():
            where = Location(leak.field.where)
            message = RedactableText("{} contains text that the model wrote as another role", where)
            excerpt = by_text.excerpt_around(leak.field.text, leak.text.strip()[:40])
            yield Finding(message=message, location=leak.field.where, excerpt=excerpt)


@check(
    SHOULD,
    spec="harmony#roles",
    when=(on.api_parses_output, on.was_answered_as_scripted, on.has_words_of_a_model, asks_for_no_dialogue),
)
def answer_ends_with_its_turn(x: Exchange) -> Iterator[Finding]:
    """The answer does not continue as the user, in plain words: `User: And Italy?`, and often the answer to that.

    A model does so if it was not stopped, or if its prompt was not Harmony (defect M04). This is only a suspicion: the request may ask for a dialogue in
    words that the check does not know.
    """
    for answer in x.answers:
        question = find_user_turn(answer.longest_text(FieldKind.CONTENT))
        if question is not None:
            yield Finding(message="the content continues as the user", location="content", excerpt=shorten(question))


@check(
    SHOULD,
    spec="harmony#final",
    when=(
        on.is_conversation,
        on.was_answered_as_scripted,
        on.has_words_of_a_model,
        on.output_is_unknown,
        asks_for_whole_characters,
    ),
)
def no_suspected_broken_character(x: Exchange) -> Iterator[Finding]:
    """No answer contains U+FFFD if its request does not.

    Decoding the tokens of a character one by one yields U+FFFD. This is only a suspicion: the model may have written it. A limit may cut a character at
    the end of a text.
    """
    was_cut = x.turn is not None and x.turn.is_truncated
    for answer in x.answers:
        for field in answer.fields:
            shown = field.text.rstrip(REPLACEMENT) if was_cut else field.text
            if field.kind is not FieldKind.OTHER and REPLACEMENT in shown:
                message = RedactableText("{} contains U+FFFD, and the request does not", Location(field.where))
                yield Finding(message=message, location=field.where, excerpt=by_text.excerpt_around(shown, REPLACEMENT))


@check(
    SHOULD,
    spec="harmony#final",
    when=(
        on.is_conversation,
        on.is_complete_answer,
        on.is_no_random_guess,
        empty_answers.stopped_by_itself,
        empty_answers.no_stop_string_ended_it,
    ),
)
def answer_is_more_than_reasoning(x: Exchange) -> Iterator[Finding]:
    """An answer that stopped by itself contains more than reasoning: content, or a call.

    If the ids show that the model wrote nothing else, it is the model's fault, and a variant. Without them the cause is unknown, and the user has no answer
    (defects O21, V06). If golden data has a row for the output, the row defines what the user must get.
    """
    turn = x.turn
    if turn is None or not (turn.reasoning or "").strip() or turn.has_answer:
        return
    if x.expectation is not None and empty_answers.owes_nothing(x.expectation.required_output):
        return
    written = count_output_tokens(x.output.ids) if x.output.ids is not None else None
    if (
        written is not None and not written.user_tokens and not written.call_tokens
    ) or empty_answers.shows_all_as_reasoning(x):
        yield variant("the model wrote nothing that is not shown as reasoning", where="content")
        return
    if written is not None and empty_answers.wrote_only_forbidden_calls(x, written):
        yield variant(_DROPPED_CALL, where="content")
        return
    message = "the answer is reasoning alone, although it stopped by itself"
    actual = RedactableText("{}, only {}", end_of(x), Location(turn.reasoning_field))
    finding = mismatch(message, "content", "content or a call", actual)
    yield cited(finding, clause_of_loss(x)) if written is not None else finding


@check(
    SHOULD,
    spec="harmony#final",
    when=(on.api_parses_output, on.was_answered_as_scripted, on.has_words_of_a_model, on.output_is_unknown),
)
def answer_is_told_once(x: Exchange) -> Iterator[Finding]:
    """The answer is returned once: its text is not the same text twice, nor one piece over and over until the limit.

    Causes are two joined finals, a text that is sent again at the end of its stream, or a model that was not stopped. If the request contains the text, or
    asks to repeat it, nothing is reported.
    """
    may_loop = x.turn is not None and x.turn.finish_reason == "length"
    for answer in x.answers:
        content = answer.longest_text(FieldKind.CONTENT)
        again = find_doubled_text(content) or (find_loop(content) if may_loop else None)
        if again is not None and not is_repetition_requested(x, again):
            yield mismatch("the content repeats the same text", "content", "the text once", shorten(again))


@check(
    MUST,
    spec="harmony#final",
    when=(
        on.is_conversation,
        on.is_complete_answer,
        on.expected_output_is_known,
        empty_answers.has_only_allowed_calls,
        wrote_what_was_asked_for,
    ),
)
@lenient_on_malformed_output
def content_is_the_answer(x: Exchange) -> Iterator[Finding]:
    """The content is what the model wrote for the user: its final messages, and preambles before a call; nothing is added or missing.

    Analysis text in the content leaks private reasoning. A missing final is an answer that the user never saw (defects V06, R03, V14, R01).
    """
    turn, output = x.turn, x.expected_output
    if turn is None or output is None:
        return
    content = turn.content or ""
    calls = () if x.api_adapter.has_text_arguments else output.calls
    unplaced = [call.arguments for call in calls if not x.can_return_call(call)]  # these may be shown as content
    if has_texts_in_order(output.user_texts, content) or has_texts_in_order((*output.user_texts, *unplaced), content):
        return
    has_moved_preambles = output.preambles and all(text in (turn.reasoning or "") for text in output.preambles)
    if has_moved_preambles and has_texts_in_order(output.finals, content):
        yield variant("the preamble is shown as reasoning, not as content", where="content")
        return
    leaked = next((text for text in output.reasoning if text.strip() and text in content), None)
    if leaked is not None:
        message = "the content contains text of the analysis channel"
        wanted = shorten("".join(output.user_texts))
        yield Finding(message=message, location="content", excerpt=shorten(content), expected=wanted, clause=ANALYSIS)
        return
    expected, actual = text_difference("".join(output.user_texts), content)
    differs = "the content differs from what the model wrote for the user"
    empty: LiteralString = (
        f"the content is empty although the model wrote {'an answer' if output.finals else 'a preamble'}"
    )
    problem = differs if content else empty
    clause = clause_of_content(x, output, content)
    if empty_answers.goes_beyond_limit(x, "".join(output.user_texts), content):
        problem, clause = "the content continues beyond the limit", "chat#max-tokens"
    yield Finding(message=problem, location="content", expected=expected, actual=actual, clause=clause)


@check(
    MUST,
    spec="harmony#preambles",
    when=(on.is_conversation, on.is_complete_answer, on.expected_output_is_known, on.expects_preamble),
)
@lenient_on_malformed_output
def preamble_is_shown(x: Exchange) -> Iterator[Finding]:
    """A preamble (commentary without recipient) reaches the client.

    Engines drop it if they use only the first analysis and the first final, or clear the content when a call follows (defects R03, L04).
    """
    turn, output = x.turn, x.expected_output
    if turn is None or output is None:
        return
    for text in output.preambles:
        trimmed = text.rstrip(REPLACEMENT)
        if trimmed in (turn.content or ""):
            continue
        if trimmed in (turn.reasoning or ""):
            yield variant("the preamble is shown as reasoning", where="reasoning")
        else:
            yield mismatch("the preamble is lost", "content", shorten(text), shorten(turn.content or "") or "nothing")


@evidence
def shows_spent_tokens(x: Exchange) -> bool:
    """answers that report usage, or whose emitted tokens are known"""
    return on.has_usage.holds(x) or on.output_is_known.holds(x)


@check(
    MUST,
    spec="harmony#final",
    when=(on.is_conversation, on.is_complete_answer, shows_spent_tokens, on.is_no_random_guess, on.wants_one_choice),
)
@lenient_on_malformed_output
def nothing_is_lost(x: Exchange) -> Iterator[Finding]:
    """An answer that stopped by itself and spent tokens beyond its reasoning gives the client content or a call.

    `content: null`, no calls, `finish_reason: stop` and a token count: the parser ended in a state that it does not flush (defects V06, V10, O21, M02, S01).
    """
    turn = x.turn
    if (
        turn is None
        or turn.is_truncated
        or turn.has_answer
        or empty_answers.has_refusal(x)
        or empty_answers.has_typed_call(x)
        or empty_answers.may_be_cut(x)
    ):
        return
    usage = turn.usage or Usage()
    spent = len(x.output.ids) if usage.completion_tokens is None and x.output.ids else usage.completion_tokens or 0
    if empty_answers.owes_nothing(x.expectation.required_output if x.expectation is not None else x.expected_output):
        return
    reasoned = usage.reasoning_tokens or min(spent, len(encode_with_special_tokens(turn.reasoning or "")))
    unaccounted = spent - reasoned - _HEADER_TOKENS
    told = RedactableText("{} tokens were spent, and the client got neither content nor a call", spent)
    if x.output.ids is not None:
        written = count_output_tokens(x.output.ids)
        if empty_answers.wrote_only_forbidden_calls(x, written):
            yield variant(_DROPPED_CALL, where="content")
            return
        unaccounted = written.user_tokens + written.call_tokens
        template = "{} tokens were spent, about {} of them on reasoning, and the client got neither content nor a call"
        if usage.completion_tokens is None and x.output.level is OutputLevel.SCRIPTED:
            template = (
                "the script has {} tokens, about {} of them of reasoning, and the client got neither content nor a call"
            )
        told = RedactableText(template, spent, written.reasoning_tokens)
    if unaccounted > 0 and empty_answers.shows_all_as_reasoning(x):
        yield variant("text under a broken header is shown as reasoning", where="reasoning")
    elif unaccounted > 0:
        if foreign := empty_answers.foreign_arguments(x):
            message = "text of the model arrived as the arguments of a call of another tool, and nothing else did"
            actual = shorten(" | ".join(foreign))
            yield cited(mismatch(message, "content", "content or a call", actual), clause_of_loss(x))
            return
        actual = RedactableText("{}, no content, no call", end_of(x))
        yield cited(mismatch(told, "content", "content or a call", actual), clause_of_loss(x))
