"""The best evidence of a prompt, out of the response, a render endpoint and a count endpoint."""

from __future__ import annotations

from harmony_conformance.apis.chat_completion import Turn
from harmony_conformance.evidence.levels import PromptEvidence, PromptLevel, PromptTokenCount, RenderedPrompt
from harmony_ref import tokens


def best_prompt_evidence(
    turn: Turn | None, rendered: RenderedPrompt | None, counted: PromptTokenCount | None
) -> PromptEvidence:
    """Return the best evidence, in this order.

    1. `prompt_token_ids` of the response.
    2. The ids of a render endpoint, unless `usage.prompt_tokens` contradicts their number.
    3. A token count only: `usage.prompt_tokens`, else that of a count endpoint.
    """
    count = (turn.usage.prompt_tokens or None) if turn is not None and turn.usage is not None else None
    if turn is not None and (ids := harmony_ids(turn.prompt_ids)) is not None:
        return PromptEvidence(level=PromptLevel.IDS, source="prompt_token_ids", ids=ids, count=count)
    ids = harmony_ids(rendered.ids) if rendered is not None else None
    if rendered is not None and ids is not None and count in (None, len(ids)):
        return PromptEvidence(level=PromptLevel.RENDERED, source=rendered.source, ids=ids, count=count)
    if count:
        return PromptEvidence(level=PromptLevel.ACCOUNTING, source="usage.prompt_tokens", count=count)
    if counted is not None:
        return PromptEvidence(level=PromptLevel.ACCOUNTING, source=counted.source, count=counted.tokens)
    return PromptEvidence(level=PromptLevel.NONE)


def harmony_ids(ids: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the ids, or None if one is outside the Harmony vocabulary: then they are another model's and prove nothing."""
    return ids if ids is None or not ids or (tokens.is_known(min(ids)) and tokens.is_known(max(ids))) else None
