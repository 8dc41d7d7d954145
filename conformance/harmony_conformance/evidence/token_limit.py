"""The token limit that a server applied, by its own count: a gateway may raise the limit of the request."""

from __future__ import annotations

from harmony_conformance.apis.chat_completion import Turn
from harmony_conformance.evidence.emitted_ids import cut_at_stop
from harmony_conformance.evidence.expected_output import parse_output


def applied_limit(turn: Turn | None, script: tuple[int, ...], limit: int | None) -> int | None:
    """Return the limit of the request, or the server's count of tokens if that is higher, and the script has as many.

    An answer that ends exactly where the limit cuts the script was cut there, whatever the count says.
    """
    count = turn.usage.completion_tokens if turn is not None and turn.usage is not None else None
    if turn is None or limit is None or count is None or not limit < count <= len(cut_at_stop(script)):
        return limit
    shown = _words(f"{turn.reasoning or ''} {turn.content or ''}")
    at_limit, beyond = (_texts(script[:end]) for end in (limit, count))
    return limit if shown == at_limit and shown != beyond else count


def _texts(ids: tuple[int, ...]) -> str | None:
    output = parse_output(ids)
    return None if output is None else _words(" ".join((*output.reasoning, *output.user_texts)))


def _words(text: str) -> str:
    return "".join(text.split())
