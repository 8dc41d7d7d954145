"""Family `stop_tokens`: generation ends where the model ended it, or at the client's limit, and the answer reports which."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.registry import COMPLETIONS, MESSAGES, RESPONSES, TGI, TGI_GENERATE
from harmony_conformance.checks.helpers.api_words import words_of
from harmony_conformance.evidence.emitted_ids import cut_at_stop
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import parse_output
from harmony_conformance.evidence.levels import AnsweredBy
from harmony_conformance.json_value import integer, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, mismatch, ruled, variant
from harmony_conformance.judge.condition import condition
from harmony_conformance.judge.rulings import SHOWN_STOP_STRINGS
from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.redactable_text import RedactableText, quote, shorten


@check(MUST, spec="harmony#stop-tokens", when=(on.was_answered, on.stops_at_eos, on.ids_were_returned))
def stops_at_stop_token(x: Exchange) -> Iterator[Finding]:
    """Nothing is generated after `<|return|>` or `<|call|>`.

    Engines that know only one of the two as end of sequence continue after a call, and the call is lost (defects M06, V02).
    """
    ids = x.output.ids
    if ids is None:
        return
    end = len(cut_at_stop(ids))
    if end < len(ids):
        message = RedactableText("{} tokens were generated after the model had ended its turn", len(ids) - end)
        yield mismatch(message, f"output token {end}", "the end of the answer", shorten(format_ids(ids[end:])))


@condition
def is_one_answer(x: Exchange) -> bool:
    """ordinary exchanges on an API that takes messages, and on Completions with one prompt, without `echo` and `best_of`"""
    if x.api != COMPLETIONS.name:
        return on.is_conversation.holds(x)
    prompt = value_at(x.request.json, "prompt")
    several = isinstance(prompt, list) and any(integer(one) is None for one in prompt)
    is_plain = value_at(x.request.json, "echo") is not True and value_at(x.request.json, "best_of") in (None, 1)
    return on.is_completion.holds(x) and is_plain and not several


@check(MUST, spec="chat#max-tokens", when=(is_one_answer, on.has_limit, on.has_usage, on.wants_one_choice))
def limit_is_kept(x: Exchange) -> Iterator[Finding]:
    """No more tokens are generated than the request allows; `length` is the finish reason of an answer cut there, and of no other.

    Clients continue an answer, or give up, by this word (defects V38, O05). `length` below the limit is a variant: the context may be full.
    A Response has a status instead, which `responses.status_says_how_it_ended` checks.
    """
    turn = x.turn
    if turn is None or turn.usage is None or turn.usage.completion_tokens is None or x.max_output_tokens is None:
        return
    spent, reason = turn.usage.completion_tokens, turn.finish_reason
    if x.max_output_tokens < spent <= (integer(value_at(x.chat_request, "max_tokens")) or 0):
        yield variant("of two limits the older one, max_tokens, was applied", where="/usage/completion_tokens")
    elif spent > x.max_output_tokens:
        message = "more tokens were generated than the request allows"
        expected = RedactableText("at most {}", x.max_output_tokens)
        yield mismatch(message, "/usage/completion_tokens", expected, quote(spent))
    if x.api == RESPONSES.name:
        return
    words = words_of(x)
    end, length = words.end_member, words.end_value("length")
    if reason == "length" and spent < x.max_output_tokens:
        if x.reached_stop:
            message = RedactableText("{} is {} below the limit, although the model ended its turn", end, length)
            actual = RedactableText("{} after {} of {} tokens", length, spent, x.max_output_tokens)
            yield mismatch(message, words.end_place, words.ends_of_a_turn, actual)
        else:
            yield variant(RedactableText("{} is {} below the limit", end, length), where=words.end_place)
    unseen = x.output.ids is None and not turn.has_answer and not x.api_adapter.is_raw
    if spent == x.max_output_tokens and reason != "length" and (x.hit_token_limit or unseen):
        message = RedactableText("the answer was cut at the limit and {} is not {}", end, length)
        yield mismatch(message, words.end_place, length, words.end_value(reason))


_MAY_SHOW_STOP_STRINGS = (MESSAGES.name, TGI.name, TGI_GENERATE.name)


@condition
def has_stop_strings(x: Exchange) -> bool:
    """requests with stop strings that must not be shown"""
    is_cut = bool(x.stop_strings) and value_at(x.chat_request, "include_stop_str_in_output") is not True
    return is_cut and x.answered_by is AnsweredBy.API


@check(MUST, spec="chat#stop", when=(is_one_answer, on.is_complete_answer, has_stop_strings))
def stop_string_is_cut(x: Exchange) -> Iterator[Finding]:
    """The content ends before the first stop string; a server may also apply stop strings to the reasoning.

    The parser of vLLM 0.32.0 decodes the ids again and shows the stop string that the detokenizer had cut. A stream that does not buffer a possible stop
    string shows its beginning. Stop strings of white space are ignored: white space may join two messages.
    """
    turn = x.turn
    content = (turn.content or "") if turn is not None else ""
    stops = [stop for stop in x.stop_strings if stop.strip() or x.api_adapter.is_raw]
    shown = [(content.find(stop), stop) for stop in stops if stop in content]
    if shown:
        place, stop = min(shown)
        rest = content[place + len(stop) :]
        message = "the content continues after a stop string" if rest else "the content contains the stop string"
        finding = mismatch(message, "/content", RedactableText("the text before {!r}", stop), shorten(content[place:]))
        yield ruled(finding, SHOWN_STOP_STRINGS) if not rest and x.api in _MAY_SHOW_STOP_STRINGS else finding
        return
    written = parse_output(x.output.ids) if x.output.ids is not None else None
    if turn is None or written is None or x.api_adapter.is_raw:
        return
    final = "".join(written.finals)
    places = [place for stop in x.stop_strings if (place := final.find(stop)) >= 0]
    if not places:
        if any(stop in thought for stop in x.stop_strings for thought in written.reasoning) and not written.finals:
            yield variant("a stop string in the reasoning ended the answer", where="/reasoning")
    elif len(written.finals) == 1 and not written.preambles and content.rstrip() != final[: min(places)].rstrip():
        message = "the content does not end where the stop string begins"
        yield mismatch(message, "/content", shorten(final[: min(places)]) or "nothing", shorten(content) or "nothing")
