"""Family `channels`: what was written for the user is shown to the user, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harmony_conformance.apis.chat_completion import Usage
from harmony_conformance.apis.text_fields import FieldKind
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import ExpectedOutput, told_in_order, written_tokens
from harmony_conformance.evidence.leaks.broken_characters import REPLACEMENT, asks_about_characters
from harmony_conformance.evidence.leaks.by_text import Leak, Strength, marker_leaks, near, reasoning_leaks, word_leaks
from harmony_conformance.evidence.leaks.by_token_ids import emitted
from harmony_conformance.evidence.leaks.repetition import asks_again, doubled, looping
from harmony_conformance.evidence.leaks.role_play import asks_for_talk, goes_on_as_the_user
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, condition, evidence, variant
from harmony_conformance.prompts.chat_request import may_be_called
from harmony_conformance.redactable_text import Location, RedactableText, quote, shorten
from harmony_ref import encode

_HEADER_TOKENS = 10  # what the headers and ends of an analysis and a final message cost beside their text


@condition
def tells_something(x: Exchange) -> bool:
    """errors, and answered requests of a model that said what it was told to, or what it wanted"""
    return on.model_spoke.holds(x) or (x.error is not None and on.was_sent.holds(x))


@check(MUST, spec="harmony#special-tokens", when=(on.is_read, tells_something))
def no_marker_leak(x: Exchange) -> Iterator[Finding]:
    """No Harmony marker reaches a client: not in content, reasoning, tool names, ids, arguments or any other text, spelled, escaped or cut over chunks.

    Seen as tool names such as `f<|channel|>commentary`, raw headers in the content after a cut, and markup inside the reasoning
    (defects V04, V07, O01, R01, M03, P12). With the emitted ids known, the same letters in ordinary tokens are content. Without them a leak has to show
    markers in the order of a header, or one in a place where parsers leave it together with what speaks for it; what the request quotes, or is
    about, is a variant. An error that quotes what could not be parsed shows the user a thought as well (llama.cpp did, until it gave it a text of its own).
    """
    yield from _told(x, marker_leaks(x, by_ids=not on.asks_for_raw_text.holds(x)))


@check(MUST, spec="harmony#analysis", when=(on.is_read, on.model_spoke))
def no_channel_words(x: Exchange) -> Iterator[Finding]:
    """No word of a header reaches a client without its marker: `analysisWe need…assistantfinalHello`.

    A server that decodes the completion as text and skips special tokens shows the chain of thought to the user, glued to the answer
    (defects T01, M07, M08, M09, M15, P09).
    """
    yield from _told(x, word_leaks(x, by_ids=not on.asks_for_raw_text.holds(x)))


@check(MUST, spec="harmony#analysis", when=(on.is_read, on.model_spoke))
def no_reasoning_in_content(x: Exchange) -> Iterator[Finding]:
    """Reasoning is not shown as part of the answer: not in tags of another model's, not repeated, not in place of it.

    A client shows the content to the user, whatever tags stand around it. Without the emitted ids only a thought in `<think>` or `<reasoning>`, or one
    that stands word for word in both fields, is a leak.
    """
    yield from _told(x, reasoning_leaks(x, by_ids=not on.asks_for_raw_text.holds(x)))


@check(
    SHOULD,
    spec="harmony#analysis",
    when=(on.is_read, on.model_spoke, on.output_is_unknown, on.speaks_of_something_else),
)
def no_suspected_leak(x: Exchange) -> Iterator[Finding]:
    """No lone marker, channel word or tag of a thought stands in what a client shows.

    One marker, or one word, proves nothing: a model may well write about Harmony. It is worth a look.
    """
    for leaks in (marker_leaks, word_leaks, reasoning_leaks):
        for leak in leaks(x, by_ids=True):
            if leak.strength is Strength.SUSPECTED:
                yield Finding(message=leak.message, at=leak.where, excerpt=leak.excerpt)


def _told(x: Exchange, leaks: Iterable[Leak]) -> Iterator[Finding]:
    """What is proven is a failure; what is quoted, or was asked for, a variant."""
    for leak in leaks:
        if leak.strength is Strength.SUSPECTED:
            continue
        if leak.strength is Strength.QUOTED or on.asks_for_raw_text.holds(x):
            yield variant(
                RedactableText("{}, which the request is about or asks for", leak.message),
                where=leak.where,
                actual=quote(leak.excerpt),
            )
        else:
            yield Finding(message=leak.message, at=leak.where, excerpt=leak.excerpt)


@check(MUST, spec="harmony#final", when=(on.ended_well, on.output_is_known))
def quoted_markers_arrive(x: Exchange) -> Iterator[Finding]:
    """A marker that the model spelled in ordinary tokens, in a text for the user, arrives: it is content.

    A filter that takes every `<|end|>` out of the text cuts the answer to anybody who asks about the format, and a page that is quoted.
    """
    for answer in x.answers:
        for marker in emitted(answer.ids).unsaid(answer) if answer.ids is not None else ():
            yield Finding(
                message=RedactableText("the model spelled {} in ordinary tokens, and it did not arrive", marker),
                at="content",
                expected=quote(marker),
                actual=shorten(answer.text_of(FieldKind.CONTENT)) or "no content",
            )


@check(MUST, spec="harmony#final", when=(on.model_spoke, on.output_is_known))
def characters_are_whole(x: Exchange) -> Iterator[Finding]:
    """No U+FFFD stands in a text whose tokens decode to whole characters.

    A character may take several tokens; who decodes each of them alone shows question marks in place of emoji and rare letters.
    """
    for answer in x.answers:
        for broken in emitted(answer.ids).broken(answer) if answer.ids is not None else ():
            yield Finding(
                message=RedactableText(
                    "{} holds U+FFFD, and the tokens are whole characters", Location(broken.field.where)
                ),
                at=broken.field.where,
                excerpt=near(broken.field.text, broken.text),
            )


@condition
def speaks_of_nobody(x: Exchange) -> bool:
    """requests that are not about people who talk"""
    return not asks_for_talk(x)


@condition
def speaks_of_whole_characters(x: Exchange) -> bool:
    """requests without U+FFFD that are not about the encoding of texts"""
    return not asks_about_characters(x)


@check(MUST, spec="harmony#roles", when=(on.is_read, on.model_spoke, on.output_is_known))
def nobody_else_speaks(x: Exchange) -> Iterator[Finding]:
    """What the model wrote in the name of the user, or of anybody but the assistant, is not shown as its answer.

    A model that is not stopped goes on with the user's next question, and answers that too; the client shows it as one answer (defect M04).
    """
    for answer in x.answers:
        for leaked in emitted(answer.ids).run_on(answer) if answer.ids is not None else ():
            yield Finding(
                message=RedactableText(
                    "{} goes on with what the model wrote in another role's name", Location(leaked.field.where)
                ),
                at=leaked.field.where,
                excerpt=near(leaked.field.text, leaked.text.strip()[:40]),
            )


@check(SHOULD, spec="harmony#roles", when=(on.is_read, on.model_spoke, speaks_of_nobody))
def answer_ends_with_its_turn(x: Exchange) -> Iterator[Finding]:
    """The answer does not go on as the user, in plain words: `User: And Italy?`, and often the answer to that.

    A model does that which was not stopped, or was given a prompt that is no Harmony (defect M04). It may have been asked for a talk in words that
    nobody foresaw, so this is a suspicion.
    """
    for answer in x.answers:
        found = goes_on_as_the_user(answer.text_of(FieldKind.CONTENT))
        if found is not None:
            yield Finding(message="the content goes on as the user", at="content", excerpt=shorten(found))


@check(
    SHOULD,
    spec="harmony#final",
    when=(on.is_conversation, on.model_spoke, on.output_is_unknown, speaks_of_whole_characters),
)
def no_suspected_broken_character(x: Exchange) -> Iterator[Finding]:
    """No U+FFFD stands in an answer to a request that has none.

    It is what is left of a character whose tokens were decoded one by one. The model may have written it all the same, so this is a suspicion. A limit may
    cut a character at the end of a text.
    """
    was_cut = x.turn is not None and x.turn.was_broken_off
    for answer in x.answers:
        for field in answer.fields:
            told = field.text.rstrip(REPLACEMENT) if was_cut else field.text
            if field.place is not FieldKind.OTHER and REPLACEMENT in told:
                yield Finding(
                    message=RedactableText("{} holds U+FFFD, and the request does not", Location(field.where)),
                    at=field.where,
                    excerpt=near(told, REPLACEMENT),
                )


@condition
def stopped_by_itself(x: Exchange) -> bool:
    """answers with finish reason stop that spent less than their limit, refuse nothing, and call no tool that the API itself has"""
    told = [one for answer in x.answers for one in answer.fields]
    return (
        x.turn is not None
        and x.turn.finish_reason == "stop"
        and not _may_be_cut(x)
        and not any(one.where == "refusal" for one in told)
        and not any(one.where.startswith("output/") and one.text.endswith("_call") for one in told)
    )


@condition
def no_stop_string_ended_it(x: Exchange) -> bool:
    """requests without stop strings, or answers that are known to have met none: servers look for them in the reasoning too"""
    return not x.stop_strings or (x.output.ids is not None and not x.meets_stop_string)


@check(
    SHOULD, spec="harmony#final", when=(on.is_conversation, on.ended_well, stopped_by_itself, no_stop_string_ended_it)
)
def answer_is_more_than_reasoning(x: Exchange) -> Iterator[Finding]:
    """An answer that stopped by itself holds more than reasoning: content, or a call.

    Where the ids show that the model wrote nothing else, it is the model's fault, and a variant. Without them nobody can tell, and the user has no answer
    (defects O21, V06). Where a row was written for the output, it says what the user is owed.
    """
    turn = x.turn
    if turn is None or not (turn.reasoning or "").strip() or turn.says_something:
        return
    if x.expectation is not None and _owes_nothing(x.expectation.must):
        return
    written = written_tokens(x.output.ids) if x.output.ids is not None else None
    if (written is not None and not written.shown and not written.called) or _shows_all_as_reasoning(x):
        yield variant("the model wrote nothing that is not shown as reasoning", where="content")
        return
    yield Finding(
        message="the answer is reasoning alone, although it stopped by itself",
        at="content",
        expected="content or tool_calls",
        actual=RedactableText("finish_reason {}, only {}", turn.finish_reason, Location(turn.reasoning_field)),
    )


@check(SHOULD, spec="harmony#final", when=(on.is_read, on.model_spoke, on.output_is_unknown))
def answer_is_told_once(x: Exchange) -> Iterator[Finding]:
    """The answer is told once: its text is not the same text twice, nor one piece over and over until the limit.

    Two finals that are joined, a text that is sent again at the end of its stream, or a model that was not stopped, look so. Where the request holds
    the text, or asks for it again, nothing is said.
    """
    for answer in x.answers:
        content = answer.text_of(FieldKind.CONTENT)
        again = doubled(content) or (
            looping(content) if x.turn is not None and x.turn.finish_reason == "length" else None
        )
        if again is not None and not asks_again(x, again):
            yield Finding(
                message="the content tells the same text again",
                at="content",
                expected="the text once",
                actual=shorten(again),
            )


@condition
def shows_only_messages(x: Exchange) -> bool:
    """completions whose calls, if any, have a tool to go to"""
    return x.expected_output is not None and (
        not x.expected_output.calls or (on.offered_tools.holds(x) and not _forbidden(x))
    )


def _forbidden(x: Exchange) -> bool:
    """Whether the model called a function that the request offers and does not allow."""
    return x.expected_output is not None and any(
        not may_be_called(x.chat_request, call.name) for call in x.expected_output.calls
    )


def _without_a_place(x: Exchange) -> tuple[str, ...]:
    """Arguments that the API has no place for, which may be shown as content."""
    calls = x.expected_output.calls if x.expected_output is not None else ()
    return (
        ()
        if x.api_adapter.arguments_are_texts
        else tuple(call.arguments for call in calls if not x.has_place_for(call))
    )


@check(MUST, spec="harmony#final", when=(on.is_conversation, on.ended_well, on.meaning_is_known, shows_only_messages))
def content_is_the_answer(x: Exchange) -> Iterator[Finding]:
    """The content is what the model wrote for the user: its final messages, and preambles before a call; nothing is added or missing.

    Analysis text in the content is a leak of private reasoning; a missing final is an answer the user never saw (defects V06, R03, V14, R01).
    """
    turn, meant = x.turn, x.expected_output
    if turn is None or meant is None:
        return
    content = turn.content or ""
    if _is_shown(meant, content) or told_in_order((*meant.shown, *_without_a_place(x)), content):
        return
    if (
        meant.preambles
        and told_in_order(meant.finals, content)
        and all(text in (turn.reasoning or "") for text in meant.preambles)
    ):
        yield variant("the preamble is shown as reasoning, not as content", where="content")
        return
    leaked = next((text for text in meant.reasoning if text.strip() and text in content), None)
    if leaked is not None:
        yield Finding(
            message="the content holds text of the analysis channel",
            at="content",
            excerpt=shorten(content),
            expected=shorten("".join(meant.shown)),
        )
        return
    expected, actual = text_difference("".join(meant.shown), content)
    problem = (
        "the content is empty although the model wrote an answer"
        if not content
        else "the content differs from what the model wrote for the user"
    )
    yield Finding(message=problem, at="content", expected=expected, actual=actual)


@check(MUST, spec="harmony#preambles", when=(on.is_conversation, on.ended_well, on.meaning_is_known, on.meant_preamble))
def preamble_is_shown(x: Exchange) -> Iterator[Finding]:
    """A preamble (commentary without recipient) reaches the client.

    Engines that keep only the first analysis and the first final, or clear the content when a call follows, drop it (defects R03, L04).
    """
    turn, meant = x.turn, x.expected_output
    if turn is None or meant is None:
        return
    for text in meant.preambles:
        if _trimmed(text) in (turn.content or ""):
            continue
        if _trimmed(text) in (turn.reasoning or ""):
            yield variant("the preamble is shown as reasoning", where="reasoning")
        else:
            yield Finding(
                message="the preamble is lost",
                at="content",
                expected=shorten(text),
                actual=shorten(turn.content or "") or "nothing",
            )


@evidence
def tells_what_was_spent(x: Exchange) -> bool:
    """answers that report usage, or whose emitted tokens are known"""
    return on.has_usage.holds(x) or on.output_is_known.holds(x)


@check(MUST, spec="harmony#final", when=(on.is_conversation, on.ended_well, tells_what_was_spent, on.wants_one_choice))
def nothing_is_lost(x: Exchange) -> Iterator[Finding]:
    """An answer that stopped by itself and spent tokens beyond its reasoning gives the client content or a call.

    `content: null`, no calls, `finish_reason: stop` and a bill: the parser ended in a state it does not flush (defects V06, V10, O21, M02, S01).
    """
    turn = x.turn
    if turn is None or turn.was_broken_off or turn.says_something or _refuses(x) or _may_be_cut(x):
        return
    usage = turn.usage or Usage()
    spent = len(x.output.ids) if usage.completion_tokens is None and x.output.ids else usage.completion_tokens or 0
    if _owes_nothing(x.expectation.must if x.expectation is not None else x.expected_output):
        return
    reasoned = usage.reasoning_tokens or len(encode(turn.reasoning or ""))
    unaccounted = spent - reasoned - _HEADER_TOKENS
    if x.output.ids is not None:
        written = written_tokens(x.output.ids)
        if written.called and not written.shown and (_forbidden(x) or not on.offered_tools.holds(x)):
            yield variant(
                "a call that the request does not allow was dropped, and nothing is shown instead", where="content"
            )
            return
        unaccounted = written.shown + written.called
    if unaccounted > 0 and _shows_all_as_reasoning(x):
        yield variant("what the model wrote under a broken header is shown as reasoning", where="reasoning")
    elif unaccounted > 0:
        yield Finding(
            message=RedactableText(
                "{} tokens were spent, about {} of them on reasoning, and the client got neither content nor a call",
                spent,
                reasoned,
            ),
            at="content",
            expected="content or tool_calls",
            actual=RedactableText("finish_reason {}, no content, no tool_calls", turn.finish_reason),
        )


def _shows_all_as_reasoning(x: Exchange) -> bool:
    """Whether the ids are known and broken, so that nobody can say what was meant for whom, and all that they hold is shown as reasoning."""
    ids, turn = x.output.ids, x.turn
    return (
        ids is not None
        and x.expected_output is None
        and turn is not None
        and emitted(ids).is_all_in(turn.reasoning or "")
    )


def _may_be_cut(x: Exchange) -> bool:
    """Whether all tokens that the request allows were spent, and nothing shows that the model ended its turn with the last of them."""
    usage = x.turn.usage if x.turn is not None else None
    spent = usage.completion_tokens if usage is not None else None
    return x.output.ids is None and x.limit is not None and spent is not None and spent >= x.limit


def _refuses(x: Exchange) -> bool:
    return any(one.where == "refusal" for answer in x.answers for one in answer.fields)


def _owes_nothing(meant: ExpectedOutput | None) -> bool:
    """Whether it is known that the model wrote neither a text for the user nor a call."""
    return meant is not None and not "".join(meant.shown).strip() and not meant.calls


def _is_shown(meant: ExpectedOutput, content: str) -> bool:
    return told_in_order(meant.shown, content)


def _trimmed(text: str) -> str:
    return text.rstrip("\ufffd")
