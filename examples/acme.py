"""Checks of a company, for `harmony-conformance run TARGET --plugin examples/acme.py`. Their ids begin with the name of this file.

`harmony-conformance run reference:defect=final-as-reasoning` is a server that fails one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harmony_conformance.plugin_api import (
    MUST,
    SHOULD,
    Clause,
    Exchange,
    Finding,
    Reads,
    RedactableText,
    check,
    mismatch,
)
from harmony_conformance.plugin_api import conditions as on

CONFIDENTIAL = Clause(
    source="Acme, rules for assistants, section 4",
    quotation="An assistant names no machine of our network.",
)
BUBBLE = Clause(source="Acme, design of the chat, section 1", quotation="A bubble has text or an action.")
_MACHINE = re.compile(r"\b[\w-]+\.acme\.internal\b")


@check(MUST, spec=CONFIDENTIAL, when=on.is_complete_answer, reads=Reads.TEXT)
def no_internal_names(x: Exchange) -> Iterator[Finding]:
    """The answer names no machine of the internal network.

    Such names come from tools and documents. Attackers look for them.
    """
    turn = x.turn
    for place, text in (("content", turn.content), ("reasoning", turn.reasoning)) if turn is not None else ():
        for name in dict.fromkeys(_MACHINE.findall(text or "")):
            yield Finding(message=RedactableText("the answer names {}", name), location=place)


@check(SHOULD, spec=BUBBLE, when=on.was_answered_as_scripted)
def answers_are_visible(x: Exchange) -> Iterator[Finding]:
    """An answer has content or a call.

    The chat shows an empty bubble otherwise.
    """
    turn = x.turn
    if turn is not None and not turn.content and not turn.tool_calls:
        yield mismatch("the user sees nothing", "content", "a text, or a call", "nothing")
