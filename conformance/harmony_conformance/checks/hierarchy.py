"""Family `hierarchy`: who says what. System and developer messages of the API are the developer's instructions in Harmony."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance import conditions as on
from harmony_conformance.check import MUST, SHOULD, Finding, check, variant
from harmony_conformance.exchange import Exchange
from harmony_conformance.prompt import Kind, shorten, wanted

_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."


@check(MUST, spec="harmony#developer", when=(on.is_chat, on.prompt_is_known, on.gives_instructions))
def instructions_reach_the_model(x: Exchange) -> Iterator[Finding]:
    """Every system and developer message of the request stands in the prompt, under `# Instructions` of a developer message, in order.

    Templates keep only the first of them, or drop those that are not first, without a word (defects J05, V31).
    """
    messages = x.read.messages if x.read else ()
    developer = "\n".join(m.content for m in messages if m.role == "developer")
    system = "\n".join(m.content for m in messages if m.role == "system")
    position = 0
    for part in (part for part in wanted(x.asked) if part.kind is Kind.INSTRUCTIONS and part.text.strip()):
        found = developer.find(part.text, position)
        if found >= 0:
            position = found + len(part.text)
        elif part.text in developer:
            yield Finding(
                message="instructions stand in another order than they were sent",
                at=part.where,
                expected="the order of the request",
                actual=shorten(part.text),
            )
        elif part.text in system:
            yield variant("instructions stand in the system message", where=part.where)
        else:
            holder = next((m.role for m in messages if part.text in m.content), None)
            yield Finding(
                message="instructions of the request are not in a developer message",
                at=part.where,
                expected=f"developer: # Instructions … {shorten(part.text)}",
                actual=f"they stand in a {holder} message" if holder else "they are nowhere in the prompt",
            )
    if position and "# Instructions" not in developer:
        yield Finding(
            message="the developer message has no `# Instructions` section",
            at="developer message",
            expected="# Instructions",
            actual=shorten(developer),
        )


@check(SHOULD, spec="harmony#identity", when=(on.is_chat, on.prompt_is_known))
def identity_is_kept(x: Exchange) -> Iterator[Finding]:
    """The system message begins with the identity the model was trained with; another identity belongs into the instructions."""
    system = next((m for m in (x.read.messages if x.read else ()) if m.role == "system"), None)
    if system is not None and not system.content.startswith(_IDENTITY):
        begin = shorten(system.content.partition("\n")[0])
        yield Finding(
            message="the system message has another identity", at="system message", expected=_IDENTITY, actual=begin
        )
