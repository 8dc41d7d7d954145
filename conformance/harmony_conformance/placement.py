"""Parts of a request and the messages of a prompt that hold them: each part once, in order, raw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harmony_conformance.check import Finding
from harmony_conformance.difference import text_difference
from harmony_conformance.prompt import PromptMessage, Wanted, shorten


def raw(parts: tuple[Wanted, ...], found: list[PromptMessage]) -> Iterator[Finding]:
    """Each part, in order, is the content of one of the messages, character for character, and there are no more messages."""
    rest = iter(found)
    for part in parts:
        if part.text and not any(message.content == part.text for message in rest):
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
    yield from no_more(parts, found)


def no_more(parts: tuple[Wanted, ...], found: list[PromptMessage]) -> Iterator[Finding]:
    """No message stands in the prompt that the request does not have."""
    if len(found) > len(parts) and parts:
        sent = Counter(part.text for part in parts)
        sent.subtract(message.content for message in found)
        surplus = next((message for message in reversed(found) if sent[message.content] < 0), found[-1])
        yield Finding(
            message=f"the prompt has more than one message for a {parts[0].kind}, or one that was not sent",
            at="prompt",
            expected=f"{len(parts)} of them",
            actual=f"{len(found)}, among them {shorten(str(surplus))}",
        )
