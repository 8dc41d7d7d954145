"""Family `headers`: every message of the prompt has a header of the form the model was trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harmony_conformance import conditions as on
from harmony_conformance.check import MUST, Finding, check, variant
from harmony_conformance.exchange import Exchange
from harmony_conformance.prompt import PromptMessage, shorten

_TYPE = r"(?: ?⟦constrain⟧(?:json|code)| (?:json|code))?"
_FORMS = {
    "system": re.compile(r"system"),
    "developer": re.compile(r"developer"),
    "user": re.compile(r"user(?::\S+)?"),
    "assistant": re.compile(
        rf"assistant(?: to=[^\s⟦]+⟦channel⟧(?:analysis|commentary|final)|⟦channel⟧(?:analysis|commentary|final)(?: to=[^\s⟦]+)?){_TYPE}"
    ),
    "tool": re.compile(
        rf"(?!tool\b)[^\s⟦]+(?: to=assistant⟦channel⟧(?:commentary|analysis)|⟦channel⟧(?:commentary|analysis)(?: to=assistant)?|(?: to=assistant)?){_TYPE}"
    ),
}
_SHOWN = {
    "assistant": "assistant⟦channel⟧analysis|commentary|final, with the recipient before or after the channel",
    "tool": "functions.NAME to=assistant⟦channel⟧commentary",
}


@check(MUST, spec="harmony#message-format", when=(on.is_chat, on.prompt_is_known))
def form_is_known(x: Exchange) -> Iterator[Finding]:
    """Each header of the prompt is a role, and for an assistant or a tool a channel and at most one recipient, in one of the known orders.

    A header the model was never trained on is imitated, and comes back broken (defects V05, V17).
    """
    for index, message in enumerate(x.prompt_messages):
        if not _FORMS[message.role].fullmatch(message.header):
            yield Finding(
                message=f"a header of the prompt has no known form ({message.role})",
                at=f"prompt message {index}",
                expected=_SHOWN.get(message.role, message.role),
                actual=shorten(message.header) or "nothing",
            )


@check(MUST, spec="harmony#stop-tokens", when=(on.is_chat, on.prompt_is_known))
def messages_end_as_they_must(x: Exchange) -> Iterator[Finding]:
    """A call of the assistant ends in `<|call|>`, every other message in `<|end|>`; `<|return|>` has no place in a prompt.

    The guide: `<|return|>` is a decode-time stop token only; prior messages in prompts end with `<|end|>`.
    """
    for index, message in enumerate(x.prompt_messages):
        expected = _end(message)
        if message.end_name == "⟦end⟧" and expected == ("⟦call⟧",):
            yield variant("a call is closed by <|end|>", where=f"prompt message {index}")
        elif message.end is not None and message.end_name not in expected:
            yield Finding(
                message="a message of the prompt ends in the wrong token",
                at=f"prompt message {index}",
                expected=" or ".join(expected),
                actual=f"{message.end_name} after {shorten(str(message))}",
            )


def _end(message: PromptMessage) -> tuple[str, ...]:
    calls = message.role == "assistant" and message.recipient is not None
    return ("⟦call⟧",) if calls else ("⟦end⟧",)
