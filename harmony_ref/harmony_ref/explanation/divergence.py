"""What `explain` answers: the styles that a prompt is in, or the first place where it is in none."""

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
    """What is the matter with a part."""

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
    QUOTED_TWICE = "quoted twice"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a prompt and what it should be.

    Attributes:
        part: what differs.
        problem: in which way.
        words: the same as a clause.
    """

    part: Part
    problem: Problem
    words: str


_TO_THE_END: Final = frozenset({Problem.CUT, Problem.LONGER})
"""Problems to which all belongs that is missing, or that is too much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recognised:
    """A prompt that is one of the accepted renderings.

    Attributes:
        styles: the names of the styles that give it.
        histories: the ways to leave out earlier reasoning that give it.
    """

    styles: tuple[str, ...]
    histories: tuple[History, ...]

    def __str__(self) -> str:
        """The styles and the histories, in one line."""
        histories = " or ".join(self.histories)
        return f"the prompt is in the style {' or '.join(self.styles)} (reasoning of earlier turns: {histories})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """The first place where a prompt is not the accepted rendering that it is nearest to.

    Attributes:
        styles: the names of the styles that give that rendering.
        histories: the ways to leave out earlier reasoning that give it.
        token: index of the first token that differs, or the prompt's length where it ends early.
        message: index in the conversation, from 0, of the message that it concerns; None for none.
        label: that message in a few words, such as `assistant → functions.f`; empty for none.
        part: what differs.
        problem: in which way.
        words: the same as a clause.
        expected: up to eight ids of the rendering from that index on.
        actual: up to eight ids of the prompt from that index on.
        expected_text: the former as text, special tokens as ⟦name⟧.
        actual_text: the latter as text.
        is_only: whether everything after this difference is as expected.
        message_styles: the names of other styles in which that message is as the prompt has it.
        is_mixed: whether each message is in an accepted form, but not all of them in one style.
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
        """Where and what, such as `message 3 (assistant → functions.f): the recipient stands after the channel`."""
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
