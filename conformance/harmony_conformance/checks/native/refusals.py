"""Refusals in native APIs."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.registry import OLLAMA, OLLAMA_GENERATE, OLLAMA_RAW, TGI, TGI_GENERATE
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import members, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import SHOULD, Finding, check, mismatch
from harmony_conformance.judge.condition import condition, only_on
from harmony_conformance.redactable_text import RedactableText, shorten

_MEMBERS = {
    **dict.fromkeys((OLLAMA.name, OLLAMA_GENERATE.name, OLLAMA_RAW.name), ("error",)),
    **dict.fromkeys((TGI.name, TGI_GENERATE.name), ("error", "error_type")),
}
"""The members of a refusal, each a string, by API."""


@only_on(*_MEMBERS)
@condition
def was_refused_natively(x: Exchange) -> bool:
    """requests that Ollama's or TGI's own API refused"""
    return x.api in _MEMBERS and on.was_refused.holds(x) and on.was_sent.holds(x)


@check(SHOULD, spec="native#refusal", when=was_refused_natively)
def refusal_is_in_its_own_form(x: Exchange) -> Iterator[Finding]:
    """A refusal has the form that the API's clients read: a string `error`, with TGI also `error_type`.

    The official clients show that text, and fail on an object. TGI's framework rejects invalid JSON with a plain text, which is accepted.
    """
    body = members(x.response_json)
    missing = [name for name in _MEMBERS[x.api] if not text(body.get(name))]
    if missing and not (x.response_json is None and x.api in (TGI.name, TGI_GENERATE.name)):
        message = RedactableText("a refusal has no string {}", " and ".join(missing))
        actual = shorten(x.response.body.decode("utf-8", "replace")) if x.response is not None else "nothing"
        yield mismatch(message, "body", ", ".join(_MEMBERS[x.api]), actual)
