"""Family `multi_turn`: the parts of the chain of thought that go back into the model, and those that must not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harmony_conformance.checks.errors import refused_reasoning_field
from harmony_conformance.checks.helpers.counted_pairs import counted_pair, token_difference
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.rendering.content_placement import place_of_next_call
from harmony_conformance.checks.rendering.prompt_diff import has_renamed_reasoning_field
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import find_pair, prompt_count
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import evidence, series_only
from harmony_conformance.judge.history_conditions import finished_reasoning, has_finished_reasoning, has_loop_reasoning
from harmony_conformance.prompts.expected_parts import PartKind, Retention
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.redactable_text import Location, RedactableText, ReportText, shorten
from harmony_ref import encode


@check(MUST, spec="harmony#drop-reasoning", when=(on.is_conversation, on.prompt_is_known, has_finished_reasoning))
def finished_reasoning_is_dropped(x: Exchange) -> Iterator[Finding]:
    """After a final answer and a new user message, the reasoning before that answer is not in the prompt.

    Where the official sources differ (between two finals, in finished turns while a new tool loop is open), retained reasoning is a variant.
    """
    own = [m.content for m in x.prompt_messages if m.role == "assistant" and m.channel in ("analysis", None)]
    for part in finished_reasoning(x):
        if not any(part.text in content for content in own):
            continue
        if part.retention is Retention.EITHER:
            yield variant("reasoning of a finished turn is retained, as openai-harmony 0.0.8 does", where=part.where)
        else:
            message = "reasoning of a finished turn was fed to the model again"
            yield mismatch(message, part.where, "not in the prompt", shorten(part.text))


@check(MUST, spec="harmony#keep-reasoning", when=(on.is_conversation, on.prompt_is_known, has_loop_reasoning))
def loop_reasoning_is_kept(x: Exchange) -> Iterator[Finding]:
    """Inside a tool loop, the reasoning since the last user message is in the prompt, on the analysis channel, before its call.

    Without it the model forgets why it called (defects V17, V41, J10, L15, O14, O19). A server may ignore it under another name than in its answers.
    """
    shown, parts, position = x.prompt_messages, x.expected_parts, 0
    last_user = max((index for index, message in enumerate(shown) if message.role == "user"), default=-1)
    messages = [message for message in shown[last_user + 1 :] if message.role == "assistant"]
    for number, part in enumerate(parts):
        if part.kind is not PartKind.REASONING or part.retention is not Retention.PRESENT:
            continue
        call = place_of_next_call(parts[number:], messages, position)
        holders = [m for m in messages[position:call] if part.text in m.content]
        if not any(message.channel == "analysis" for message in holders):
            is_shown = any(part.text in m.content for m in x.prompt_messages)
            if not is_shown and has_renamed_reasoning_field(x, part.where):
                yield variant("reasoning under a name that is not the server's own is not read", where=part.where)
                continue
            elsewhere = next((message for message in (*holders, *messages) if part.text in message.content), None)
            yield Finding(
                message="reasoning of the open tool loop is not on the analysis channel before its call",
                location=part.where,
                expected=RedactableText("analysis: {}", shorten(part.text)),
                actual=shorten(str(elsewhere)) if elsewhere is not None else "not in the prompt",
            )
        elif not any(f"\n{part.text.strip()}\n" in f"\n{message.content.strip()}\n" for message in holders):
            expected, actual = text_difference(part.text, holders[0].content)
            yield mismatch("reasoning of the open tool loop is not what was sent", part.where, expected, actual)
        position = position if call is None else call + 1


@series_only
@evidence
def has_finished_pair(series: Series) -> bool:
    """counted prompts of two requests that differ in the length of a finished turn's reasoning; if it costs nothing, of an open loop's too"""
    finished = _reasoning_growth(series, "finished, short", "finished, long")
    if finished is None:
        return False
    return finished[0] != 0 or _reasoning_growth(series, "open, short", "open, long") is not None


@comparison(MUST, spec="harmony#drop-reasoning", when=has_finished_pair)
def reasoning_costs_what_it_must(series: Series) -> Iterator[Finding]:
    """By prompt_tokens: longer reasoning of a finished turn costs nothing, longer reasoning of an open tool loop costs its tokens.

    Works on a black box. Both are needed: a server that never reads reasoning passes the first alone (defects V17, V41, J10, P10). If the server refuses
    the loop, only the first can fail. Example: in vLLM 0.11.0 a reasoning item has no channel, so that it is never dropped (defect V18).
    """
    finished = _reasoning_growth(series, "finished, short", "finished, long")
    opened = _reasoning_growth(series, "open, short", "open, long")
    if finished is None:
        return
    if finished[0] != 0:
        message = "longer reasoning of a finished turn changes the length of the prompt"
        actual = token_difference(finished[0])
        yield mismatch(message, "/usage/prompt_tokens", "0 more tokens", actual, exchange=finished[2])
    if opened is not None and opened[0] != opened[1]:
        message = "longer reasoning of an open tool loop does not cost its tokens"
        expected, actual = token_difference(opened[1]), token_difference(opened[0])
        finding = mismatch(message, "/usage/prompt_tokens", expected, actual, exchange=opened[2])
        yield replace(finding, clause="harmony#keep-reasoning")


def _reasoning_growth(series: Series, short: str, long: str) -> tuple[int, int, str] | None:
    """Return the growth of the prompt in tokens, the growth if the reasoning is retained, and the id of the longer exchange."""
    counted = counted_pair(series, short, long)
    if counted is None:
        return None
    growth = _reasoning_token_count(counted.longer) - _reasoning_token_count(counted.shorter)
    return counted.prompt_growth, growth, counted.longer.id


def _reasoning_token_count(x: Exchange) -> int:
    return sum(len(encode(part.text)) for part in x.expected_parts if part.kind is PartKind.REASONING)


WITHOUT_REASONING = "no reasoning"
"""The step without reasoning in its history. The other steps are named after the field of the reasoning (`as reasoning`). The suite may send the
field name of the endpoint instead."""


def _exchanges_by_reasoning_field(series: Series) -> Iterator[tuple[str, Exchange, bool]]:
    """Yield each field name that carried reasoning, its exchange, and True if the reasoning reached the model, by prompt ids or else by prompt count."""
    for name in REASONING_FIELDS:
        exchanges = find_pair(series, WITHOUT_REASONING, f"as {name}")
        if exchanges is None or not has_loop_reasoning.holds(exchanges[1]):
            continue
        without, x = exchanges
        part = next(part for part in x.expected_parts if part.kind is PartKind.REASONING)
        sent_as = part.where.rpartition("/")[2]
        less, more = prompt_count(without), prompt_count(x)
        if x.parsed_prompt is not None:
            yield sent_as, x, any(part.text in message.content for message in x.prompt_messages)
        elif less is not None and more is not None:
            yield sent_as, x, more - less >= len(encode(part.text))


@series_only
@evidence
def has_named_reasoning(series: Series) -> bool:
    """requests that send reasoning of an open tool loop under each field name, with prompts shown or counted"""
    return any(True for _ in _exchanges_by_reasoning_field(series))


def _unread(x: Exchange, message: RedactableText, actual: ReportText) -> Finding:
    where = next((part.where for part in x.expected_parts if part.kind is PartKind.REASONING), "")
    return mismatch(message, where, "reasoning in the prompt", actual, exchange=x.id)


@comparison(MUST, spec="harmony#keep-reasoning", when=has_named_reasoning)
def reasoning_is_read_under_its_own_name(series: Series) -> Iterator[Finding]:
    """Reasoning that a client sends back under the server's own field name reaches the model.

    Works on a black box. Clients send back the message that they received. If a server returns `reasoning` and reads only `reasoning_content`, its model
    forgets why it called (defects V41, J10, O14). A server may ignore or refuse other names.
    """
    answers = (x.turn for x in series.exchanges.values() if x.turn is not None and x.turn.reasoning)
    own = next((turn.reasoning_field for turn in answers), None)
    named: dict[str, tuple[Exchange, bool]] = {}
    for name, x, is_read in _exchanges_by_reasoning_field(series):
        named.setdefault(name, (x, is_read))
    read = [name for name, (_, is_read) in named.items() if is_read]
    for name, (x, is_read) in named.items() if read else ():
        if is_read:
            continue
        if name == own:
            message = RedactableText("reasoning sent as `{}` is not read, the server's own name for it", Location(name))
            yield _unread(x, message, RedactableText("it is ignored; `{}` is read", Location(read[0])))
        else:
            template = "reasoning sent as `{}` is not read; the server's own name is {}"
            yield variant(RedactableText(template, Location(name), Location(own or "not known")), where=name)
    if named and not read:
        x, _ = named.get(own or "") or next(iter(named.values()))
        names = Location(", ".join(sorted(named)))
        message = RedactableText("reasoning that is sent back is not read; it was sent as: {}", names)
        yield _unread(x, message, "it is ignored")
    refused = dict.fromkeys(filter(None, map(refused_reasoning_field, series.exchanges.values())))
    for name in refused if read else ():
        template = "reasoning sent as `{}` is refused; it goes back as `{}`"
        yield variant(RedactableText(template, Location(name), Location(read[0])), where=name)
