"""Parts of a request in the messages of a prompt: each part once, in order, verbatim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import LiteralString

from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.json_value import InvalidJsonError, Json, items, loads, pointer, resolve, text, value_at
from harmony_conformance.judge.check import Finding, mismatch, variant
from harmony_conformance.prompts.declarations_in_prompt import declares_functions, is_same_function
from harmony_conformance.prompts.expected_parts import PartKind, PromptMessage, PromptPart, Retention
from harmony_conformance.redactable_text import RedactableText, ReportText, shorten
from harmony_ref import tokens


def find_changed_contents(parts: tuple[PromptPart, ...], messages: list[PromptMessage]) -> Iterator[Finding]:
    """Yield a finding if the parts are not, in order and character for character, the contents of the messages."""
    rest = iter(messages)
    for part in parts:
        if part.text and not any(message.content == part.text for message in rest):
            contents = [message.content for message in messages]
            expected, actual = shorten(part.text), RedactableText("no {} in the prompt", part.kind)
            if contents:
                holders = (content for content in contents if part.text in content)
                similar = next((content for content in contents if content[:8] == part.text[:8]), contents[0])
                similar = next(holders, similar)
                expected, actual = text_difference(part.text, similar)
            problem = RedactableText("a {} is not in the prompt as it was sent", part.kind)
            yield mismatch(problem, part.where, expected, actual)
            return
    yield from find_surplus_messages(parts, messages)


def join_lines_as_in_prompt(
    request: Json, parts: Sequence[PromptPart], messages: Sequence[PromptMessage]
) -> tuple[PromptPart, ...]:
    """Return the parts, with several texts of one part joined by white space if a message has them in this form.

    The message may have them as a JSON string.
    """
    contents = {content for message in messages for content in (message.content, quoted_text(message.content))}

    def as_in_prompt(part: PromptPart) -> PromptPart:
        if not part.text or part.text in contents:
            return part
        pieces = [text(value_at(piece, "text")) for piece in items(resolve(request, part.where))]
        joined = next((one for mark in PART_SEPARATORS if (one := mark.join(pieces)) in contents), part.text)
        return replace(part, text=joined)

    return tuple(map(as_in_prompt, parts))


PART_SEPARATORS = ("\n", " ", "\n\n")
"""White space that servers put between the parts of a text. No source defines a separator."""


def are_joined(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> bool:
    """Return True if messages of the request that follow each other are one message of the prompt, and nothing else differs.

    White space may part their texts.
    """
    left = [part for part in parts if part.text]
    for message in messages:
        rest, before = message.content, None
        while rest:
            if not left or (before is not None and _place_of_message(left[0]) != _place_of_message(before) + 1):
                return False
            marks = ("",) if before is None else ("", *PART_SEPARATORS)
            begin = next((mark + left[0].text for mark in marks if rest.startswith(mark + left[0].text)), None)
            if begin is None:
                return False
            rest, before, left = rest.removeprefix(begin), left[0], left[1:]
    return not left


def _place_of_message(part: PromptPart) -> int:
    return int(part.where.split("/")[2])


def quoted_text(content: str) -> str | None:
    """Return the text that a content is as a JSON string, None if it is no such string."""
    try:
        return text(loads(content)) if content.startswith('"') else None
    except InvalidJsonError:
        return None


def find_joined_lines(sent: Sequence[PromptPart], joined: Sequence[PromptPart]) -> Iterator[Finding]:
    """Yield a variant for each part with its texts joined by white space: nothing is lost, and no source defines a separator."""
    for part in joined:
        if part not in sent:
            yield variant("the parts of a text are separated by white space", where=part.where)


def find_wrong_address(part: PromptPart, message: PromptMessage) -> Iterator[Finding]:
    """Yield findings if a function result is not addressed to the assistant, or is on a channel other than commentary."""
    properties: tuple[tuple[LiteralString, str | None, LiteralString], ...] = (
        ("addressed to the assistant", message.recipient, "assistant"),
        ("on the commentary channel", message.channel or "commentary", "commentary"),
    )
    for description, actual, expected in properties:
        if actual != expected:
            yield mismatch(f"a function result is not {description}", part.where, expected, shorten(message.header))
    if message.channel is None:
        yield variant("a function result names no channel, as in Ollama's template", where=part.where)


def find_surplus_messages(parts: tuple[PromptPart, ...], messages: list[PromptMessage]) -> Iterator[Finding]:
    """Yield a finding if the prompt has more messages than the request has parts."""
    texts = sum(1 for part in parts if part.text)
    if parts and (len(messages) > len(parts) or sum(1 for message in messages if message.content) > texts):
        unmatched = Counter(part.text for part in parts)
        unmatched.subtract(message.content for message in messages)
        surplus = next((message for message in reversed(messages) if unmatched[message.content] < 0), messages[-1])
        yield Finding(
            message=RedactableText(
                "the prompt has more than one message for a {}, or one that was not sent", parts[0].kind
            ),
            location="prompt",
            expected=RedactableText("{} of them", len(parts)),
            actual=RedactableText("{}, among them {}", len(messages), shorten(str(surplus))),
        )


def place_of_next_call(parts: Sequence[PromptPart], messages: Sequence[PromptMessage], start: int) -> int | None:
    """Return the index, from `start` on, of the message with the first call among the parts; None without such a message."""
    call = next((part for part in parts if part.kind is PartKind.CALL), parts[0])
    places = range(start, len(messages))
    return next((place for place in places if is_same_function(call.function, messages[place].function)), None)


def kind_of(message: PromptMessage) -> PartKind | None:
    """Return the kind of a conversation message in the prompt, None for system and developer messages."""
    match message.role:
        case "user":
            return PartKind.USER
        case "tool":
            return PartKind.RESULT
        case "assistant" if message.recipient is not None:
            return PartKind.CALL
        case "assistant":
            by_channel = {"analysis": PartKind.REASONING, "commentary": PartKind.PREAMBLE}
            return by_channel.get(message.channel or "", PartKind.FINAL)
        case _:
            return None


def find_conversation_faults(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> Iterator[Finding]:
    """Yield findings if the prompt does not contain the conversation in order, and nothing else."""
    yield from _find_added_messages(parts, messages)
    yield from _find_order_faults(parts, messages)
    yield from _declared_late_or_twice(parts, messages)


_COUNTED_ELSEWHERE = frozenset({PartKind.USER, PartKind.FINAL, PartKind.CALL, PartKind.RESULT})


def _find_added_messages(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> Iterator[Finding]:
    """Yield a finding for a user, assistant or tool message without a corresponding part of the request.

    A changed part, which another check reports, explains one message. Kinds that the request has are counted by their own checks.
    """
    unmatched = [part for part in parts if part.kind is not PartKind.INSTRUCTIONS]
    counted = {part.kind for part in parts} & _COUNTED_ELSEWHERE
    invented: list[PromptMessage] = []
    for message in messages:
        part = next((part for part in unmatched if _matches(part, message)), None)
        kind = kind_of(message)
        if part is not None:
            unmatched.remove(part)
        elif kind is not None and kind not in counted and (message.content or message.recipient is not None):
            invented.append(message)
    if len(invented) > sum(part.retention is Retention.PRESENT and part.text != "" for part in unmatched):
        problem = "the prompt has a message that the request does not have"
        yield mismatch(problem, "prompt", "the messages of the request", shorten(str(invented[-1])))


def _find_order_faults(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> Iterator[Finding]:
    """Yield findings if messages are not in the order of the request. A result may follow its own call or all calls of a message."""
    places = _places(parts, messages)
    placed = [(block, part, places[number]) for number, (block, part) in enumerate(blocks(parts)) if number in places]
    talk = sorted((entry for entry in placed if entry[1].kind is not PartKind.INSTRUCTIONS), key=lambda entry: entry[2])
    for (block, part, _), (next_block, next_part, _) in pairwise(talk):
        if next_block < block and not _is_reported_elsewhere(part, next_part):
            yield _order_mismatch(next_part, RedactableText("after a {} that was sent after it", part.kind))
            return
    open_calls: Counter[str | None] = Counter(
        part.function for number, part in enumerate(parts) if part.kind is PartKind.CALL and number not in places
    )
    for _, part, _ in talk:
        open_calls[part.function] += {PartKind.CALL: 1, PartKind.RESULT: -1}.get(part.kind, 0)
        if part.function is not None and open_calls[part.function] < 0:
            yield _order_mismatch(part, "before its call")
            return
    for block, part, place in (entry for entry in placed if entry[1].kind is PartKind.INSTRUCTIONS):
        if any(later > block and before < place for later, _, before in talk):
            yield _order_mismatch(part, "after later messages")
        elif any(sooner < block and after > place for sooner, _, after in talk):
            yield variant("instructions come before earlier messages", where=part.where)


def _is_reported_elsewhere(first: PromptPart, then: PromptPart) -> bool:
    """Return True if another check covers the order: messages of one kind, or a call and the reasoning or preamble before it."""
    if first.kind is then.kind:
        return first.kind in _COUNTED_ELSEWHERE
    leads_to_a_call = then.kind in (PartKind.REASONING, PartKind.PREAMBLE) and then.retention is Retention.PRESENT
    return first.kind in (PartKind.CALL, PartKind.RESULT) and leads_to_a_call


def _declared_late_or_twice(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> Iterator[Finding]:
    """Yield findings if functions are declared twice or late. Declarations in a client's own instructions do not count."""
    own = [part.text for part in parts if part.kind is PartKind.INSTRUCTIONS and declares_functions(part.text)]
    start = next((place for place, message in enumerate(messages) if kind_of(message) is not None), len(messages))
    unknown = ((place, message) for place, message in enumerate(messages) if kind_of(message) is None)
    contents = [(place, message.content) for place, message in unknown if declares_functions(message.content)]
    declaring = [place for place, content in contents if not any(text in content for text in own)]
    for place in declaring[1:] or [place for place in declaring if place > start]:
        problem = "the functions are declared twice, or after the conversation began"
        expected = "once, in the developer message before the conversation"
        yield mismatch(problem, f"prompt message {place}", expected, shorten(str(messages[place])))


def _order_mismatch(part: PromptPart, actual: ReportText) -> Finding:
    message = RedactableText("{} in another order than the request has", part.kind)
    return mismatch(message, part.where, "the order of the request", actual)


def _matches(part: PromptPart, message: PromptMessage) -> bool:
    kind = kind_of(message)
    match part.kind:
        case PartKind.INSTRUCTIONS:
            return message.role == "developer" and bool(part.text.strip()) and part.text in message.content
        case PartKind.CALL:
            return kind is PartKind.CALL and is_same_function(part.function, message.function)
        case PartKind.REASONING:
            return kind is PartKind.REASONING and message.content.strip() == part.text.strip()
        case _:
            is_on_analysis = part.kind is PartKind.PREAMBLE and kind is PartKind.REASONING
            return (kind is part.kind or is_on_analysis) and message.content == part.text


def _places(parts: Sequence[PromptPart], messages: Sequence[PromptMessage]) -> dict[int, int]:
    """Map the number of each part in the prompt to the index of its message. A developer message may contain several."""
    places: dict[int, int] = {}
    taken: set[int | tuple[int, str]] = set()
    for number, part in enumerate(parts):
        for place, message in enumerate(messages):
            slot = (place, part.text) if part.kind is PartKind.INSTRUCTIONS else place
            if slot not in taken and _matches(part, message):
                taken.add(slot)
                places[number] = place
                break
    return places


def blocks(parts: Sequence[PromptPart]) -> Iterator[tuple[int, PromptPart]]:
    """Yield each part with the number of its block.

    Parts of one block may come in any order: the calls of a message and their results, or reasoning and its preamble.
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


def place_of_empty_text(request: Json, message: PromptMessage) -> str | None:
    """Return the place of an empty text of the request that a message of the prompt may stand for. None without one."""
    if message.recipient is not None or message.channel == "analysis":
        return None
    sent = enumerate(items(value_at(request, "messages")))
    return next((pointer("messages", place, "content") for place, one in sent if _is_empty(one, message.role)), None)


def _is_empty(message: Json, role: str) -> bool:
    return value_at(message, "role") == role and value_at(message, "content") == ""


def without_content(message: PromptMessage) -> PromptMessage:
    """Return a message of the prompt with its header and its end alone."""
    begin = message.ids.index(tokens.MESSAGE) + 1 if tokens.MESSAGE in message.ids else 0
    return replace(message, content="", ids=(*message.ids[:begin], *message.ids[-1:]))
