"""Parts of a request and the messages of a prompt that hold them: each part once, in order, raw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import LiteralString

from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.json_value import Json, at, items, resolve, text
from harmony_conformance.judge.check import Finding, variant
from harmony_conformance.prompts.prompt_parser import PartKind, PromptMessage, PromptPart, Retention
from harmony_conformance.prompts.tool_declarations import declares_functions, is_same_function
from harmony_conformance.redactable_text import RedactableText, ReportText, shorten


def raw(parts: tuple[PromptPart, ...], found: list[PromptMessage]) -> Iterator[Finding]:
    """Each part, in order, is the content of one of the messages, character for character, and there are no more messages."""
    rest = iter(found)
    for part in parts:
        if part.text and not any(message.content == part.text for message in rest):
            alike = [message.content for message in found if message.content[:8] == part.text[:8]]
            nearest = [*alike, *(message.content for message in found)]
            expected, actual = shorten(part.text), RedactableText("no {} in the prompt", part.kind)
            if nearest:
                expected, actual = text_difference(part.text, nearest[0])
            yield Finding(
                message=RedactableText("a {} does not stand in the prompt as it was sent", part.kind),
                at=part.where,
                expected=expected,
                actual=actual,
            )
            return
    yield from no_more(parts, found)


def on_lines(request: Json, parts: Sequence[PromptPart], found: Sequence[PromptMessage]) -> tuple[PromptPart, ...]:
    """The parts, those of several texts with each on a line of its own where a message has them so."""
    held = {message.content for message in found}

    def as_held(part: PromptPart) -> PromptPart:
        if not part.text or part.text in held:
            return part
        lines = "\n".join(text(at(piece, "text")) for piece in items(resolve(request, part.where)))
        return replace(part, text=lines) if lines in held else part

    return tuple(map(as_held, parts))


def told_on_lines(sent: Sequence[PromptPart], held: Sequence[PromptPart]) -> Iterator[Finding]:
    """A variant for each part whose texts the prompt has on lines of their own: nothing is lost, and no source says what stands between them."""
    for part in held:
        if part not in sent:
            yield variant("a line end stands between the parts of a text", where=part.where)


def to_the_assistant(part: PromptPart, message: PromptMessage) -> Iterator[Finding]:
    """A function result is addressed to the assistant, on the commentary channel, or names none."""
    told: tuple[tuple[LiteralString, str | None, LiteralString], ...] = (
        ("addressed to the assistant", message.recipient, "assistant"),
        ("on the commentary channel", message.channel or "commentary", "commentary"),
    )
    for what, shown, expected in told:
        if shown != expected:
            yield Finding(
                message=f"a function result is not {what}",
                at=part.where,
                expected=expected,
                actual=shorten(message.header),
            )
    if message.channel is None:
        yield variant("a function result names no channel, as in Ollama's template", where=part.where)


def no_more(parts: tuple[PromptPart, ...], found: list[PromptMessage]) -> Iterator[Finding]:
    """No message stands in the prompt that the request does not have."""
    texts = sum(1 for part in parts if part.text)
    if parts and (len(found) > len(parts) or sum(1 for message in found if message.content) > texts):
        sent = Counter(part.text for part in parts)
        sent.subtract(message.content for message in found)
        surplus = next((message for message in reversed(found) if sent[message.content] < 0), found[-1])
        yield Finding(
            message=RedactableText(
                "the prompt has more than one message for a {}, or one that was not sent", parts[0].kind
            ),
            at="prompt",
            expected=RedactableText("{} of them", len(parts)),
            actual=RedactableText("{}, among them {}", len(found), shorten(str(surplus))),
        )


def place_of_next_call(parts: Sequence[PromptPart], said: Sequence[PromptMessage], position: int) -> int | None:
    """Where the first call among the parts stands among the messages from `position` on, None where it does not."""
    call = next((part for part in parts if part.kind is PartKind.CALL), parts[0])
    return next((i for i in range(position, len(said)) if is_same_function(call.function, said[i].function)), None)


def kind_of(message: PromptMessage) -> PartKind | None:
    """What a message of the prompt is as a part of the conversation; None for the system's and the developer's."""
    match message.role:
        case "user":
            return PartKind.USER
        case "tool":
            return PartKind.RESULT
        case "assistant" if message.recipient is not None:
            return PartKind.CALL
        case "assistant":
            return {"analysis": PartKind.REASONING, "commentary": PartKind.PREAMBLE}.get(
                message.channel or "", PartKind.FINAL
            )
        case _:
            return None


def conversation_alone(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> Iterator[Finding]:
    """The conversation stands in the prompt in its order, and no other message does."""
    yield from _invented(parts, messages)
    yield from _disordered(parts, messages)
    yield from _declared_late_or_twice(parts, messages)


_COUNTED_ELSEWHERE = frozenset({PartKind.USER, PartKind.FINAL, PartKind.CALL, PartKind.RESULT})


def _invented(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> Iterator[Finding]:
    """No message of a user, an assistant or a tool stands in the prompt that no part of the request accounts for.

    A part that stands there changed, and is blamed for that, accounts for one message; kinds that the request has are counted by their own checks.
    """
    left = [part for part in parts if part.kind is not PartKind.INSTRUCTIONS]
    strangers: list[PromptMessage] = []
    for message in messages:
        part = next((part for part in left if _accounts(part, message)), None)
        if part is not None:
            left.remove(part)
        elif kind_of(message) is not None and (message.content or message.recipient is not None):
            strangers.append(message)
    counted = {part.kind for part in parts} & _COUNTED_ELSEWHERE
    invented = [message for message in strangers if kind_of(message) not in counted]
    if len(invented) > sum(part.retention is Retention.PRESENT and part.text != "" for part in left):
        yield Finding(
            message="the prompt has a message that the request does not have",
            at="prompt",
            expected="the messages of the request",
            actual=shorten(str(invented[-1])),
        )


def _disordered(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> Iterator[Finding]:
    """What was said stands in the order of the request, whoever said it; a result may follow its own call or all calls of a message."""
    places = _places(parts, messages)
    said = [(block, part, places[number]) for number, (block, part) in enumerate(blocks(parts)) if number in places]
    talk = sorted((entry for entry in said if entry[1].kind is not PartKind.INSTRUCTIONS), key=lambda entry: entry[2])
    for (block, part, _), (next_block, next_part, _) in pairwise(talk):
        if next_block < block and not _is_blamed_elsewhere(part, next_part):
            yield _misplaced(next_part, RedactableText("after a {} that was sent after it", part.kind))
            return
    waiting: Counter[str | None] = Counter(
        part.function for number, part in enumerate(parts) if part.kind is PartKind.CALL and number not in places
    )
    for _, part, _ in talk:
        waiting[part.function] += {PartKind.CALL: 1, PartKind.RESULT: -1}.get(part.kind, 0)
        if part.function is not None and waiting[part.function] < 0:
            yield _misplaced(part, "before its call")
            return
    for block, part, place in said:
        if part.kind is PartKind.INSTRUCTIONS and any(later > block and before < place for later, _, before in talk):
            yield _misplaced(part, "after what was sent after them")
        elif part.kind is PartKind.INSTRUCTIONS and any(sooner < block and after > place for sooner, _, after in talk):
            yield variant("instructions stand before what was sent before them", where=part.where)


def _is_blamed_elsewhere(first: PromptPart, then: PromptPart) -> bool:
    """Whether another check looks at the order of the two: of messages of one kind, and of a call and what was thought or told before it."""
    if first.kind is then.kind:
        return first.kind in _COUNTED_ELSEWHERE
    leads_to_a_call = then.kind in (PartKind.REASONING, PartKind.PREAMBLE) and then.retention is Retention.PRESENT
    return first.kind in (PartKind.CALL, PartKind.RESULT) and leads_to_a_call


def _declared_late_or_twice(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> Iterator[Finding]:
    """The functions are declared once, before the conversation; what a client writes of a namespace into its instructions declares nothing."""
    told = [part.text for part in parts if part.kind is PartKind.INSTRUCTIONS and declares_functions(part.text)]
    begun = next((place for place, message in enumerate(messages) if kind_of(message) is not None), len(messages))
    declaring = [
        place
        for place, message in enumerate(messages)
        if kind_of(message) is None
        and declares_functions(message.content)
        and not any(text in message.content for text in told)
    ]
    for place in declaring[1:] or [place for place in declaring if place > begun]:
        yield Finding(
            message="the functions are declared twice, or after the conversation began",
            at=f"prompt message {place}",
            expected="once, in the developer message before the conversation",
            actual=shorten(str(messages[place])),
        )


def _misplaced(part: PromptPart, actual: ReportText) -> Finding:
    return Finding(
        message=RedactableText("{} in another order than the request has", part.kind),
        at=part.where,
        expected="the order of the request",
        actual=actual,
    )


def _accounts(part: PromptPart, message: PromptMessage) -> bool:
    kind = kind_of(message)
    match part.kind:
        case PartKind.INSTRUCTIONS:
            return message.role == "developer" and bool(part.text.strip()) and part.text in message.content
        case PartKind.CALL:
            return kind is PartKind.CALL and is_same_function(part.function, message.function)
        case PartKind.REASONING:
            return kind is PartKind.REASONING and message.content.strip() == part.text.strip()
        case _:
            is_thought = part.kind is PartKind.PREAMBLE and kind is PartKind.REASONING
            return (kind is part.kind or is_thought) and message.content == part.text


def _places(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> dict[int, int]:
    """For each part that the prompt holds, by its number, the message that holds it; a developer message may hold several."""
    places: dict[int, int] = {}
    taken: set[int | tuple[int, str]] = set()
    for number, part in enumerate(parts):
        for place, message in enumerate(messages):
            seat = (place, part.text) if part.kind is PartKind.INSTRUCTIONS else place
            if seat not in taken and _accounts(part, message):
                taken.add(seat)
                places[number] = place
                break
    return places


def blocks(parts: Sequence[PromptPart]) -> Iterator[tuple[int, PromptPart]]:
    """Each part with the number of its block.

    Parts of one block may stand in any order: the calls of a message and their results, a thought and what was told beside it.
    """
    block = 0
    for before, part in pairwise((None, *parts)):
        match before and before.kind, part and part.kind:
            case (PartKind.CALL | PartKind.RESULT, PartKind.RESULT) | (PartKind.REASONING, PartKind.PREAMBLE):
                pass
            case (PartKind.CALL, PartKind.CALL) if before and part and _message_of(before) == _message_of(part):
                pass
            case _:
                block += 1
        if part is not None:
            yield block, part


def _message_of(part: PromptPart) -> str:
    return "/".join(part.where.split("/")[:3])
