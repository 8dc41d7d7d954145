"""Evidence about an exchange that is not in its bytes: validity of the request, origin of the response, prompt and output tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Validity(StrEnum):
    """The validity of a request by the API reference.

    - `valid`: Every member has a documented type and value.
    - `invalid`: A member has another type or value than the reference allows.
    - `questionable`: The reference does not decide, so the server may answer or reject.
    - `unknown`: The request comes from a log, or servers may refuse it (`judge/rulings.py`). An answer is judged like any other.
    """

    VALID = "valid"
    INVALID = "invalid"
    QUESTIONABLE = "questionable"
    UNKNOWN = "unknown"


REFUSABLE_VALIDITIES = frozenset({Validity.INVALID, Validity.QUESTIONABLE})
"""The requests that a server may refuse."""


class PromptLevel(StrEnum):
    """The evidence about the prompt, from most to least.

    - `ids`: The response has the prompt's token ids.
    - `rendered`: A render endpoint returned the ids for the same request.
    - `accounting`: Only the number of prompt tokens is known.
    - `none`: Nothing is known.
    """

    IDS = "ids"
    RENDERED = "rendered"
    ACCOUNTING = "accounting"
    NONE = "none"


class OutputLevel(StrEnum):
    """The evidence about the emitted tokens, from most to least.

    - `scripted`: The suite forced the token ids.
    - `exact`: The response has the token ids.
    - `api only`: Only the parsed response is known.
    """

    SCRIPTED = "scripted"
    EXACT = "exact"
    API_ONLY = "api only"


class AnsweredBy(StrEnum):
    """The origin of the response: the API as clients use it, or a vLLM endpoint that does not generate.

    - `render`: Only the prompt is the server's.
    - `derender`: The server parsed the ids of a script. Stream framing, times, token counts and ids come from the suite.
    """

    API = "api"
    RENDER = "render"
    DERENDER = "derender"


@dataclass(frozen=True, kw_only=True)
class PromptEvidence:
    """The best evidence of the prompt.

    Attributes:
        level: The kind of evidence.
        source: The member or endpoint with the evidence, empty at level `none`.
        ids: The prompt's token ids, or None below the level `rendered`.
        count: The reported number of prompt tokens, or None.
    """

    level: PromptLevel
    source: str = ""
    ids: tuple[int, ...] | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class OutputEvidence:
    """The best evidence of the emitted token ids. `ids` includes special tokens; at level `api only` it equals None."""

    level: OutputLevel
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RenderedPrompt:
    """The prompt's token ids for the same request from a render endpoint (`source`)."""

    source: str
    ids: tuple[int, ...]

    @property
    def is_text(self) -> bool:
        """True if the server shows the prompt as text: the ids are those of the vocabulary that the model was trained on."""
        return self.source in TEXT_SOURCES


TEXT_SOURCES = frozenset({"/apply-template", "__verbose.prompt", "_debug_render_only"})
"""The sources of prompts that return text: llama.cpp's two, and that of Ollama."""


@dataclass(frozen=True, kw_only=True)
class PromptTokenCount:
    """The number of prompt tokens for the same request from a count endpoint (`source`), which does not generate."""

    source: str
    tokens: int


METRICS_API = "metrics"
"""The API name of an exchange that requests metrics."""

SPLIT_IN_DOUBT = "into other tokens"
"""A part of the reason why a script is in doubt, if the server split its text in another way, or may have."""
