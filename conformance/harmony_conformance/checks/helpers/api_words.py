"""The words of an API for the end of an answer and for its calls, in place of those of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import LiteralString

from harmony_conformance.apis.registry import MESSAGES, OLLAMA, RESPONSES, TGI
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.redactable_text import RedactableText, quote


@dataclass(frozen=True, kw_only=True)
class ApiWords:
    """The words of an API.

    Attributes:
        end: The member that says why an answer ended.
        ends: Its values, by those of Chat Completions.
        calls: The calls of an answer.
        arguments: The arguments of a call.
        end_with_calls: The value for an answer with calls, by those of Chat Completions. Some APIs have no own value for it.
        names_calls: Whether the value itself says that there are calls. A status does not.
    """

    end: LiteralString = "finish_reason"
    ends: Mapping[str, LiteralString]
    calls: LiteralString = "tool_calls"
    arguments: LiteralString = "arguments"
    end_with_calls: LiteralString = "tool_calls"
    names_calls: bool = True

    @property
    def end_member(self) -> RedactableText:
        """The member that says why an answer ended, as a part of a message."""
        return RedactableText(self.end)

    @property
    def end_place(self) -> str:
        """The place of that member."""
        return f"/{self.end}"

    @property
    def ends_of_a_turn(self) -> RedactableText:
        """The values for an answer that the model ended, joined by "or"."""
        return self.end_value(*dict.fromkeys(("stop", self.end_with_calls)))

    def end_value(self, *reasons: str | None) -> RedactableText:
        """Return one or several values of that member, joined by "or", from those of Chat Completions."""
        first, *others = (_word(self.ends, reason) for reason in reasons)
        for other in others:
            first = RedactableText("{} or {}", first, other)
        return first

    def compared_end(self, reason: str | None) -> str | None:
        """Return the value of that member to compare it between two answers. The calls are compared apart."""
        if reason is None:
            return None
        return str(self.end_value("stop" if reason == "tool_calls" and not self.names_calls else reason))


def _word(words: Mapping[str, LiteralString], reason: str | None) -> RedactableText:
    return RedactableText(words[reason]) if reason is not None and reason in words else quote(reason)


_ENDS: Mapping[str, LiteralString] = MappingProxyType(
    {one: one for one in ("stop", "length", "tool_calls", "content_filter", "function_call")}
)
_WORDS = {
    RESPONSES.name: ApiWords(
        end="status",
        ends={
            "stop": "completed",
            "length": "incomplete (incomplete_details.reason max_output_tokens)",
            "tool_calls": "completed, with a call",
            "content_filter": "incomplete (incomplete_details.reason content_filter)",
        },
        calls="function_call",
        names_calls=False,
    ),
    MESSAGES.name: ApiWords(
        end="stop_reason",
        ends={"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"},
        calls="tool_use",
        arguments="input",
    ),
    OLLAMA.name: ApiWords(end="done_reason", ends=_ENDS, end_with_calls="stop"),
    TGI.name: ApiWords(ends=_ENDS, end_with_calls="stop"),
}


def words_of(x: Exchange) -> ApiWords:
    """Return the words of the API that the exchange was sent to."""
    words = _WORDS.get(x.api, _CHAT)
    if x.api == MESSAGES.name and x.stop_strings:
        return replace(words, ends={**words.ends, "stop": "end_turn or stop_sequence"})
    return words


def end_of(x: Exchange) -> RedactableText:
    """Return the member that says why the answer ended, and its value."""
    words = words_of(x)
    return RedactableText("{} {}", words.end_member, words.end_value(None if x.turn is None else x.turn.finish_reason))


_CHAT = ApiWords(ends=_ENDS)
