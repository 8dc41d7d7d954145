"""Family `prompt`: what the server fed the model is what the client sent, as Harmony messages. Needs the prompt's token ids."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance import conditions as on
from harmony_conformance.check import MUST, SHOULD, Finding, check, comparison, condition, evidence, variant
from harmony_conformance.difference import text_difference
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.json_value import NotJson, at, canonical, loads, pointer, text
from harmony_conformance.prompt import Kind, Place, PromptMessage, Wanted, shorten, wanted
from harmony_ref import encode


def _parts(x: Exchange, *kinds: Kind) -> tuple[Wanted, ...]:
    return tuple(part for part in wanted(x.asked) if part.kind in kinds)


def _messages(x: Exchange, role: str, channel: str | None = None) -> list[PromptMessage]:
    return [
        m for m in (x.read.messages if x.read else ()) if m.role == role and (channel is None or m.channel == channel)
    ]


def _raw(parts: tuple[Wanted, ...], found: list[PromptMessage]) -> Iterator[Finding]:
    """Each part, in order, is the content of one of the messages, character for character."""
    rest = iter(found)
    for part in parts:
        message = next((candidate for candidate in rest if candidate.content == part.text), None)
        if message is None:
            nearest = next(
                (m.content for m in found if m.content[:8] == part.text[:8]), found[0].content if found else None
            )
            expected, actual = (
                text_difference(part.text, nearest)
                if nearest is not None
                else (shorten(part.text), f"no {part.kind} in the prompt")
            )
            yield Finding(
                message=f"a {part.kind} does not stand in the prompt as it was sent",
                at=part.where,
                expected=expected,
                actual=actual,
            )
            return


@check(MUST, spec="harmony#roles", when=(on.is_chat, on.prompt_is_known, on.has_user_message))
def user_text_is_whole(x: Exchange) -> Iterator[Finding]:
    """Each user message stands in the prompt once, in order, under the role user, character for character; parts of a content are joined."""
    yield from _raw(_parts(x, Kind.USER), _messages(x, "user"))


@check(MUST, spec="harmony#final", when=(on.is_chat, on.prompt_is_known, on.has_earlier_answer))
def earlier_answers_are_final(x: Exchange) -> Iterator[Finding]:
    """Earlier answers stand in the prompt as assistant messages on the final channel, unchanged (defect V17)."""
    yield from _raw(_parts(x, Kind.FINAL), _messages(x, "assistant", "final"))


@check(MUST, spec="harmony#preambles", when=(on.is_chat, on.prompt_is_known, on.has_preamble_history))
def preamble_is_kept(x: Exchange) -> Iterator[Finding]:
    """Content next to a function call is in the prompt, before the call; on the commentary channel by the guide.

    Templates that refuse or erase it lose what the user was told (defects L04, V17).
    """
    for part in _parts(x, Kind.PREAMBLE):
        held = [m for m in (x.read.messages if x.read else ()) if m.role == "assistant" and m.content == part.text]
        if not held:
            yield Finding(
                message="the preamble of a call is not in the prompt",
                at=part.where,
                expected=shorten(part.text),
                actual="no such message",
            )
        elif held[0].channel != "commentary":
            yield variant(f"the preamble of a call stands on the {held[0].channel} channel", where=part.where)


@check(MUST, spec="harmony#receiving-calls", when=(on.is_chat, on.prompt_is_known, on.has_call_history))
def calls_are_rendered(x: Exchange) -> Iterator[Finding]:
    r"""Each earlier call stands in the prompt: to its function, with its arguments encoded once.

    Arguments that are quoted again (`"{\"a\":1}"`) teach the model to answer so (defects J01, V17).
    """
    rest = iter([m for m in _messages(x, "assistant") if m.recipient is not None])
    for part in _parts(x, Kind.CALL):
        message = next((m for m in rest if m.function == part.function), None)
        if message is None:
            yield Finding(
                message=f"the call of {part.function} is not in the prompt",
                at=part.where,
                expected=f"to=functions.{part.function}",
                actual="no such message",
            )
            return
        if message.channel != "commentary":
            yield variant(f"the call of {part.function} stands on the {message.channel} channel", where=part.where)
        if message.content == part.text:
            continue
        if _json(message.content) == _json(part.text) and _json(part.text) is not None:
            yield variant("the arguments of a call were written anew: equal as JSON", where=part.where)
        else:
            expected, actual = text_difference(part.text, message.content)
            yield Finding(
                message="the arguments of a call are not what was sent", at=part.where, expected=expected, actual=actual
            )


@check(MUST, spec="harmony#tool-messages", when=(on.is_chat, on.prompt_is_known, on.has_results))
def results_are_rendered(x: Exchange) -> Iterator[Finding]:
    """Each function result stands in the prompt raw, from its function, to the assistant, on the commentary channel (defects J02, V17, T02)."""
    rest = iter(_messages(x, "tool"))
    for part in _parts(x, Kind.RESULT):
        message = next(rest, None)
        if message is None:
            yield Finding(
                message="a function result is not in the prompt",
                at=part.where,
                expected=shorten(part.text),
                actual="no such message",
            )
            return
        if message.function != part.function:
            yield Finding(
                message="a function result stands under another name",
                at=part.where,
                expected=f"functions.{part.function}",
                actual=str(message.name),
            )
        if message.recipient != "assistant":
            yield Finding(
                message="a function result is not addressed to the assistant",
                at=part.where,
                expected="to=assistant",
                actual=message.header,
            )
        if message.channel != "commentary":
            yield Finding(
                message="a function result is not on the commentary channel",
                at=part.where,
                expected="commentary",
                actual=str(message.channel),
            )
        if message.content != part.text:
            expected, actual = text_difference(part.text, message.content)
            yield Finding(
                message="a function result is not what was sent", at=part.where, expected=expected, actual=actual
            )


@check(MUST, spec="harmony#tools", when=(on.is_chat, on.prompt_is_known, on.offered_tools))
def tools_are_declared(x: Exchange) -> Iterator[Finding]:
    """Every offered function is declared in the prompt: `type NAME = …` within `namespace functions`, and its description beside it (defects M14, T03)."""
    texts = "\n".join(m.content for m in (x.read.messages if x.read else ()) if m.role in ("developer", "system"))
    _, _, declared = texts.partition("namespace functions {")
    for index, tool in enumerate(x.tools):
        name, description = text(at(tool, "function", "name")), text(at(tool, "function", "description"))
        if f"type {name} = " not in declared:
            yield Finding(
                message=f"the function {name} is not declared in the prompt",
                at=pointer("tools", index),
                expected=f"type {name} = (_: …) => any;",
                actual="no such line",
            )
        elif (lines := description.splitlines()) and any(line.strip() not in declared for line in lines):
            yield Finding(
                message=f"the description of {name} is not in the prompt",
                at=pointer("tools", index, "function", "description"),
                expected=shorten(description),
                actual="not there",
            )


@check(SHOULD, spec="harmony#tools", when=(on.is_chat, on.prompt_is_known, on.offered_tools))
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


@check(MUST, spec="harmony#message-format", when=(on.is_chat, on.prompt_is_known))
def is_a_list_of_messages(x: Exchange) -> Iterator[Finding]:
    """The prompt is Harmony messages, each closed, none doubled by markers in a text, with one system message first."""
    if x.read is None:
        return
    for piece in x.read.stray:
        yield Finding(
            message="tokens stand between the messages of the prompt",
            at="prompt",
            expected="messages only",
            actual=shorten(piece),
        )
    for index, message in enumerate(x.read.messages):
        if "⟦" in message.content:
            yield Finding(
                message="a special token stands inside a message's content",
                at=f"prompt message {index}",
                expected="text",
                actual=shorten(message.content),
            )
        if message.end is None:
            yield Finding(
                message="a message of the prompt is not closed",
                at=f"prompt message {index}",
                expected="⟦end⟧",
                actual=shorten(str(message)),
            )
    roles = [m.role for m in x.read.messages]
    if roles[:1] != ["system"]:
        yield Finding(
            message="the prompt does not begin with the system message",
            at="prompt message 0",
            expected="system",
            actual=roles[0] if roles else "no message",
        )
    if roles.count("system") > 1:
        yield Finding(
            message="the prompt has several system messages",
            at="prompt",
            expected="1",
            actual=str(roles.count("system")),
        )


@check(MUST, spec="harmony#prompt-end", when=(on.is_chat, on.prompt_is_known))
def ends_with_the_assistant(x: Exchange) -> Iterator[Finding]:
    """The prompt ends with `<|start|>assistant`, so that the model itself chooses the channel."""
    if x.read is not None and x.read.trailer != "⟦start⟧assistant":
        yield Finding(
            message="the prompt does not end with the beginning of an assistant message",
            at="end of the prompt",
            expected="⟦start⟧assistant",
            actual=shorten(x.read.trailer) or "nothing",
        )


@condition
def has_two_headers_of_a_kind(x: Exchange) -> bool:
    """prompts with two messages that have a recipient"""
    return len([m for m in (x.read.messages if x.read else ()) if m.recipient is not None]) > 1


@check(MUST, spec="harmony#receiving-calls", when=(on.is_chat, on.prompt_is_known, has_two_headers_of_a_kind))
def one_header_form(x: Exchange) -> Iterator[Finding]:
    """All calls of a prompt name the recipient in one place, before the channel or after it; results likewise.

    A model that is shown two forms writes a third (defect V05).
    """
    for role in ("assistant", "tool"):
        places = {m.place for m in _messages(x, role) if m.place is not Place.NONE}
        if len(places) > 1:
            yield Finding(
                message=f"headers of the same kind ({role}) have two forms in one prompt",
                at="prompt",
                expected="one form",
                actual=" and ".join(sorted(places)),
            )


@check(
    SHOULD, spec="harmony#receiving-calls", when=(on.is_chat, on.prompt_is_known, on.has_call_history, on.has_results)
)
def calls_and_results_agree_in_form(x: Exchange) -> Iterator[Finding]:
    """Calls and results name the recipient in the same place (defect V20)."""
    calls = {m.place for m in _messages(x, "assistant") if m.place is not Place.NONE}
    results = {m.place for m in _messages(x, "tool") if m.place is not Place.NONE}
    if len(calls) == 1 and len(results) == 1 and calls != results:
        yield Finding(
            message="calls and results have different header forms",
            at="prompt",
            expected=f"calls and results: {calls.pop()}",
            actual=f"results: {results.pop()}",
        )


@check(MUST, spec="harmony#special-tokens", when=(on.is_chat, on.prompt_is_known, on.quotes_markers))
def markers_in_text_stay_text(x: Exchange) -> Iterator[Finding]:
    """Markers in what a client sends are fed as ordinary text, never as special tokens.

    Otherwise any user can write system messages, and any web page that a tool returns (defects J11, L08).
    """
    if x.read is None:
        return
    fed = len(x.read.messages)
    parts = wanted(x.asked)
    most = 2 + len(parts)  # a system and a developer message, and one for each part of the request
    inside = [m for m in x.read.messages if "⟦" in m.content]
    unknown = [
        m for m in x.read.messages if m.role in ("user", "tool") and not any(part.text == m.content for part in parts)
    ]
    if fed > most or inside or unknown:
        shown = (inside or unknown or list(x.read.messages))[0]
        yield Finding(
            message="text of the request became special tokens in the prompt",
            at="prompt",
            expected=f"at most {most} messages, their texts as sent",
            actual=f"{fed} messages, among them {shorten(str(shown))}",
        )


@evidence
def has_counted_pair(series: Series) -> bool:
    """pairs of requests whose prompts are counted and differ in one text"""
    return any(_pair(series, first, second) is not None for first, second in PAIRS)


PAIRS = (("plain text", "marked text"), ("one instruction", "two instructions"), ("short result", "long result"))
"""Steps of a scenario that differ in one text only, so that the difference of their prompt counts is the difference of that text."""


@comparison(MUST, spec="harmony#special-tokens", when=has_counted_pair)
def text_costs_its_tokens(series: Series) -> Iterator[Finding]:
    """Two requests that differ in one text differ in prompt_tokens by what that text is in ordinary tokens.

    Works on a black box, since injected preambles cancel out: a marker that became a special token costs 1 instead of 5, a dropped message costs
    nothing, a quoted result costs its quotes (defects J11, L08, J05, J02).
    """
    for first, second in PAIRS:
        found = _pair(series, first, second)
        if found is None:
            continue
        one, other = found
        expected = _tokens(other) - _tokens(one)
        actual = (on.prompt_count(other) or 0) - (on.prompt_count(one) or 0)
        if actual != expected and not _joins_differently(one, other, actual - expected):
            yield Finding(
                message=f"between {first} and {second} the prompt grew by {actual} tokens",
                at="/usage/prompt_tokens",
                expected=f"{expected} more tokens",
                actual=f"{actual} more tokens",
                exchange=other.id,
            )


def _pair(series: Series, first: str, second: str) -> tuple[Exchange, Exchange] | None:
    found = on.pair(series, first, second)
    return found if found is not None and None not in map(on.prompt_count, found) else None


def _tokens(x: Exchange) -> int:
    return sum(len(encode(part.text)) for part in wanted(x.asked))


def _joins_differently(one: Exchange, other: Exchange, off: int) -> bool:
    """Whether a message more explains a small offset: its header and separators are the server's form, four to twelve tokens."""
    more = len(wanted(other.asked)) - len(wanted(one.asked))
    return more > 0 and 0 <= off <= 12 * more


def _json(value: str) -> str | None:
    try:
        return canonical(loads(value))
    except NotJson:
        return None
