"""Identify the renderer of a run's prompts: the accepted forms that fit all of them, and the values in the system messages.

With token ids, a form fits if it reproduces every examined prompt exactly. With counts, it fits if all prompts are longer by the same number
of tokens: the size of the provider's preamble. If no form fits, the renderer is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice

from harmony_conformance.apis.registry import CONVERSATION_APIS
from harmony_conformance.checks.helpers.counted_requests import counted_requests, has_comparable_counts
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import PromptLevel
from harmony_conformance.json_value import JsonObject, items, text, value_at
from harmony_conformance.prompts.conversation import conversation_of
from harmony_conformance.prompts.known_mistakes import is_call
from harmony_conformance.prompts.token_accounting import FORMS, PromptForm, explain_counts
from harmony_ref import Message, Role
from harmony_ref.styles import Style
from harmony_ref.styles.styled_rendering import each_rendered, next_turn

_MAX_PROMPTS = 32
_MAX_OF_KIND = 3
_LINES = {
    "date": re.compile(r"^Current date: (.*)$", re.MULTILINE),
    "cutoff": re.compile(r"^Knowledge cutoff: (.*)$", re.MULTILINE),
    "effort": re.compile(r"^Reasoning: (.*)$", re.MULTILINE),
    "identity": re.compile(r"\A(?!Knowledge cutoff: |Current date: |Reasoning: )(.*)$", re.MULTILINE),
}


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The identified renderer.

    Attributes:
        evidence: Either `ids` or `accounting`.
        forms: The names of the accepted forms that fit most prompts; empty if none fits any.
        matching_prompts: The number of prompts that they fit.
        prompts: The number of examined prompts.
        preamble: With counts, the number of additional tokens in every prompt; None with ids.
        lines: The distinct values in the system messages: date, cutoff, effort and identity.
    """

    evidence: PromptLevel
    forms: tuple[str, ...]
    matching_prompts: int
    prompts: int
    preamble: int | None = None
    lines: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def to_json(self) -> JsonObject:
        """Return the JSON form for a report's header."""
        return {
            "evidence": self.evidence.value,
            "forms": list(self.forms) or ["unknown"],
            "fitting": self.matching_prompts,
            "prompts": self.prompts,
            **({"preamble": self.preamble} if self.preamble is not None else {}),
            **{name: list(values) for name, values in self.lines},
        }


def fingerprint(series: Iterable[Series]) -> Fingerprint | None:
    """Identify the renderer of a run, by token ids if available, else by counts. Return None without both."""
    series = list(series)
    exchanges = [x for one in series for x in one.exchanges.values() if x.api in CONVERSATION_APIS]
    sample = _sample([x for x in exchanges if items(value_at(x.chat_request, "messages"))])
    if sample:
        return _by_ids(sample)
    counted = next((one for one in series if has_comparable_counts.holds(one)), None)
    return _by_counts(counted) if counted is not None else None


def _by_ids(sample: Sequence[Exchange]) -> Fingerprint:
    fits = Counter(dict.fromkeys(FORMS, 0))
    for x in sample:
        fits.update(_fitting_forms(x))
    most = max(fits.values())
    return Fingerprint(
        evidence=PromptLevel.IDS,
        forms=tuple(dict.fromkeys(str(form) for form, fitting in fits.items() if most and fitting == most)),
        matching_prompts=most,
        prompts=len(sample),
        lines=tuple((name, values) for name in _LINES if (values := tuple(sorted(set(_values(name, sample)))))),
    )


def _by_counts(series: Series) -> Fingerprint:
    requests, counts = counted_requests(series)
    accounts = [account for account in explain_counts(requests, counts) if not account.mistakes and not account.growth]
    return Fingerprint(
        evidence=PromptLevel.ACCOUNTING,
        forms=tuple(dict.fromkeys(chain.from_iterable(account.form_names for account in accounts))),
        matching_prompts=len(counts) if accounts else 0,
        prompts=len(counts),
        preamble=accounts[0].extra_tokens if accounts else None,
    )


def _sample(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return distinct requests with prompt ids, a few for each set of roles and declarations, those with most kinds first.

    Forms differ in roles and declarations. Requests are grouped before answers are parsed, since few of thousands are examined.
    """
    by_body: dict[bytes, list[Exchange]] = {}
    for x in exchanges:
        by_body.setdefault(x.chat_request_body, []).append(x)
    by_kinds: dict[frozenset[str], list[list[Exchange]]] = {}
    for equal in by_body.values():
        by_kinds.setdefault(_kinds(equal[0]), []).append(equal)
    richest = sorted(by_kinds.items(), key=lambda group: len(group[0]), reverse=True)
    with_ids = (islice(filter(None, map(_last_with_ids, group)), _MAX_OF_KIND) for _, group in richest)
    return list(islice(chain.from_iterable(with_ids), _MAX_PROMPTS))


def _last_with_ids(equal: Sequence[Exchange]) -> Exchange | None:
    return next((x for x in reversed(equal) if x.turn is not None and x.prompt.ids is not None), None)


def _kinds(x: Exchange) -> frozenset[str]:
    messages = items(value_at(x.chat_request, "messages"))
    roles = {text(value_at(message, "role")) for message in messages}
    calls = {"calls" for message in messages if items(value_at(message, "tool_calls"))}
    return frozenset(roles | calls | ({"tools"} if items(value_at(x.chat_request, "tools")) else set()))


def _fitting_forms(x: Exchange) -> Iterator[PromptForm]:
    """Yield the forms that reproduce a prompt exactly."""
    date = next(_values("date", [x]), None)
    known: dict[Style, list[tuple[Sequence[Message], bool]]] = {}  # most readings of a request are the same messages
    for reading, forms in groupby(FORMS, key=lambda form: form.options):
        typed = conversation_of(x.chat_request, reading, date=date)
        untyped = tuple(replace(message, content_type=None) if is_call(message) else message for message in typed)
        for form in forms:
            messages = typed if form.has_call_types else untyped
            of_style = known.setdefault(form.style, [])
            fits = next((fits for others, fits in of_style if others == messages), None)
            if fits is None:
                fits = _renders_to(x.prompt.ids or (), messages, form.style)
                of_style.append((messages, fits))
            if fits:
                yield form


def _renders_to(prompt: Sequence[int], messages: Sequence[Message], style: Style) -> bool:
    # rendering stops at the first difference
    place = 0
    for rendered in each_rendered(messages, style):
        end = place + len(rendered.ids)
        if tuple(prompt[place:end]) != rendered.ids:
            return False
        place = end
    return tuple(prompt[place:]) == next_turn(Role.ASSISTANT)


def _values(name: str, exchanges: Iterable[Exchange]) -> Iterator[str]:
    for x in exchanges:
        line = _LINES[name].search(x.system_message.content) if x.system_message is not None else None
        if line is not None:
            yield line[1]
