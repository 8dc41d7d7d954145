"""Results of `explain`: the styles of a prompt, or the first place where it differs from all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harmony_ref.styles import History


class Part(StrEnum):
    """A part of a prompt."""

    PROMPT = "prompt"
    BETWEEN = "between messages"
    MESSAGE = "message"
    ROLE = "role"
    NAME = "name"
    RECIPIENT = "recipient"
    CHANNEL = "channel"
    CONTENT_TYPE = "content type"
    HEADER = "header"
    CONTENT = "content"
    IDENTITY = "model identity"
    CUTOFF = "knowledge cutoff"
    DATE = "current date"
    EFFORT = "reasoning effort"
    CHANNELS = "valid channels"
    FUNCTIONS_NOTE = "note on functions"
    TOOLS = "tools"
    INSTRUCTIONS = "instructions"
    RESPONSE_FORMATS = "response formats"
    SECTIONS = "sections"
    END = "end marker"
    NEXT_TURN = "next turn"


class Problem(StrEnum):
    """A kind of difference."""

    EMPTY = "empty"
    CUT = "cut"
    LONGER = "longer"
    UNKNOWN_TOKEN = "unknown token"  # noqa: S105 - a token of a vocabulary
    SPELLED_OUT = "marker spelled out"
    INJECTED = "marker injected"
    OTHER_TOKENS = "same text in other tokens"
    MISSING = "missing"
    EXTRA = "extra"
    REPEATED = "repeated"
    MOVED = "moved"
    REASONING_DROPPED = "reasoning dropped"
    REASONING_KEPT = "reasoning kept"
    MISPLACED = "misplaced"
    OTHER_SPELLING = "other spelling"
    QUOTED = "quoted"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a prompt and its rendering: the part that differs, in which way, and both as a clause."""

    part: Part
    problem: Problem
    description: str


_TO_THE_END: Final = frozenset({Problem.CUT, Problem.LONGER})
"""Problems that extend to the end of the prompt or of the rendering."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recognised:
    """An accepted prompt: the names of its styles, and the ways to drop earlier reasoning that it agrees with."""

    styles: tuple[str, ...]
    histories: tuple[History, ...]

    def __str__(self) -> str:
        """The styles and the histories, in one line."""
        histories = " or ".join(self.histories)
        return f"the prompt is in the style {' or '.join(self.styles)} (reasoning of earlier turns: {histories})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """The first difference between a prompt and the nearest accepted rendering.

    Attributes:
        styles: names of the styles that produce the rendering.
        histories: ways to drop earlier reasoning that produce it.
        token: index of the first token that differs, or the prompt's length if it ends early.
        message: index of the message in the conversation, from 0. None if no message is concerned.
        label: short name of that message, such as `assistant → functions.f`; empty without a message.
        part: the part that differs.
        problem: the kind of difference.
        words: part and problem as a clause.
        expected: up to eight ids of the rendering from that index on.
        actual: up to eight ids of the prompt from that index on.
        expected_text: `expected` as text, special tokens as ⟦name⟧.
        actual_text: `actual` as text.
        is_only: True if everything after this difference is as expected.
        message_styles: names of other styles that write the message as the prompt has it.
        is_mixed: True if each message is in an accepted form, but they do not share a style.
    """

    styles: tuple[str, ...]
    histories: tuple[History, ...]
    token: int
    message: int | None
    label: str
    part: Part
    problem: Problem
    words: str
    expected: Sequence[int]
    actual: Sequence[int]
    expected_text: str
    actual_text: str
    is_only: bool
    message_styles: tuple[str, ...] = ()
    is_mixed: bool = False

    @property
    def sentence(self) -> str:
        """The message and the problem: `message 3 (assistant → functions.f): the recipient is after the channel`."""
        place = "" if self.message is None else f"message {self.message} ({self.label}): "
        like = f", as in the style {' or '.join(self.message_styles)}" if self.message_styles else ""
        return f"{place}{self.words}{like}"

    @property
    def _rest(self) -> str:
        if self.is_mixed:
            return "each message is in an accepted form, but not all in one style"
        if self.problem in _TO_THE_END:
            return "all before it is as expected"
        return "all else is as expected" if self.is_only else "more may differ after it"

    def __str__(self) -> str:
        """The sentence, the token, the tokens of both sides and the nearest style."""
        return (
            f"{self.sentence}\n"
            f"token {self.token}: {self.actual_text!r} where {self.expected_text!r} was expected; {self._rest}\n"
            f"nearest style: {' or '.join(self.styles)} (reasoning of earlier turns: {' or '.join(self.histories)})"
        )
