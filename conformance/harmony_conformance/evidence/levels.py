"""What is known of an exchange beside what crossed the wire: whether its request is valid, who answered it, what went into the model and came out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Validity(StrEnum):
    """What is known of a request; in a log it is unknown.

    `invalid`: the API reference gives a type or a set of values, and the request has another. `questionable`: odd in a way that servers settle
    differently, so that an answer and a refusal are both right.
    """

    VALID = "valid"
    INVALID = "invalid"
    QUESTIONABLE = "questionable"
    UNKNOWN = "unknown"


class PromptLevel(StrEnum):
    """How much of the prompt can be seen, from most to least."""

    IDS = "ids"
    RENDERED = "rendered"
    ACCOUNTING = "accounting"
    NONE = "none"


class OutputLevel(StrEnum):
    """How much is known of what the model emitted, from most to least."""

    SCRIPTED = "scripted"
    EXACT = "exact"
    API_ONLY = "api only"


class AnsweredBy(StrEnum):
    """What gave the answer: the API as clients use it, or one half of a server that generates nothing.

    Of `render` there is the prompt alone. Of `derender` there is what a client would be given for the ids of a script; the framing of a stream, its
    times, and every count and id of tokens in it are ours.
    """

    API = "api"
    RENDER = "render"
    DERENDER = "derender"


@dataclass(frozen=True, kw_only=True)
class PromptEvidence:
    """What is known of the prompt, and where it was seen. `ids` goes with levels ids and rendered, `count` is the number of prompt tokens reported."""

    level: PromptLevel
    source: str = ""
    ids: tuple[int, ...] | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class OutputEvidence:
    """The ids the model emitted, where they are known."""

    level: OutputLevel
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RenderedPrompt:
    """The ids that a side endpoint says it would feed for the same request."""

    source: str
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class PromptTokenCount:
    """The number of prompt tokens that a side endpoint tells for the same request, without generating."""

    source: str
    tokens: int


METRICS_API = "metrics"
"""What an exchange is about that asks for metrics."""
