"""Which renderer made the prompts of a run: the accepted forms that fit all of them, and what the system messages say.

From ids, a form fits when it gives the very tokens of every prompt looked at. From counts alone, it fits when every prompt is the same number of tokens
longer than in that form; that number is the size of what the provider puts before each. Where no form fits, the renderer is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice

from harmony_conformance.apis.registry import CONVERSATIONS
from harmony_conformance.checks.accounting import counted_requests, has_accounts
from harmony_conformance.evidence.exchange import Exchange, PromptLevel, Series
from harmony_conformance.json_value import JsonObject, at, items, text
from harmony_conformance.prompts.conversation import conversation_of
from harmony_conformance.prompts.known_mistakes import is_call
from harmony_conformance.prompts.token_accounting import FORMS, PromptForm, explain_counts
from harmony_ref import Message, Role
from harmony_ref.styles import Style
from harmony_ref.styles.styled_rendering import each_rendered, next_turn

_LOOKED_AT = 32
_OF_EACH = 3
_LINES = {
    "date": re.compile(r"^Current date: (.*)$", re.MULTILINE),
    "cutoff": re.compile(r"^Knowledge cutoff: (.*)$", re.MULTILINE),
    "effort": re.compile(r"^Reasoning: (.*)$", re.MULTILINE),
    "identity": re.compile(r"\A(?!Knowledge cutoff: |Current date: |Reasoning: )(.*)$", re.MULTILINE),
}


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What is known of the renderer.

    Attributes:
        evidence: `ids` or `accounting`.
        forms: the names of the accepted forms that fit most prompts; empty where none fits any.
        fitting: how many prompts they fit.
        prompts: how many prompts were looked at.
        preamble: by counts, how many tokens every prompt has besides; None by ids.
        lines: what the lines of the system messages say: by date, cutoff, effort and identity, each value once.
    """

    evidence: PromptLevel
    forms: tuple[str, ...]
    fitting: int
    prompts: int
    preamble: int | None = None
    lines: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def told(self) -> JsonObject:
        """The JSON form, as it stands in a report's header."""
        return {
            "evidence": self.evidence.value,
            "forms": list(self.forms) or ["unknown"],
            "fitting": self.fitting,
            "prompts": self.prompts,
            **({"preamble": self.preamble} if self.preamble is not None else {}),
            **{name: list(values) for name, values in self.lines},
        }


def fingerprint(series: Iterable[Series]) -> Fingerprint | None:
    """The renderer behind a run, by ids where they are shown, else by counts. None where neither says anything."""
    listed = list(series)
    exchanges = [x for one in listed for x in one.exchanges.values() if x.api in CONVERSATIONS]
    shown = _telling([x for x in exchanges if items(at(x.chat_request, "messages"))])
    if shown:
        return _by_ids(shown)
    counted = next((one for one in listed if has_accounts.holds(one)), None)
    return _by_counts(counted) if counted is not None else None


def _by_ids(shown: Sequence[Exchange]) -> Fingerprint:
    fits = Counter(dict.fromkeys(FORMS, 0))
    for x in shown:
        fits.update(_forms_of(x))
    most = max(fits.values())
    return Fingerprint(
        evidence=PromptLevel.IDS,
        forms=tuple(dict.fromkeys(str(form) for form, fitting in fits.items() if most and fitting == most)),
        fitting=most,
        prompts=len(shown),
        lines=tuple((name, values) for name in _LINES if (values := tuple(sorted(set(_values(name, shown)))))),
    )


def _by_counts(series: Series) -> Fingerprint:
    requests, counts = counted_requests(series)
    accounts = [account for account in explain_counts(requests, counts) if not account.mistakes and not account.growth]
    return Fingerprint(
        evidence=PromptLevel.ACCOUNTING,
        forms=tuple(dict.fromkeys(chain.from_iterable(account.forms for account in accounts))),
        fitting=len(counts) if accounts else 0,
        prompts=len(counts),
        preamble=accounts[0].preamble if accounts else None,
    )


def _telling(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Some whose prompts are shown with each set of roles and declarations, since forms differ there, those with most kinds first; each request once.

    Requests are told apart before an answer is read: of thousands, a few are looked at.
    """
    equal: dict[bytes, list[Exchange]] = {}
    for x in exchanges:
        equal.setdefault(x.chat_request_body, []).append(x)
    alike: dict[frozenset[str], list[list[Exchange]]] = {}
    for same in equal.values():
        alike.setdefault(_kinds(same[0]), []).append(same)
    richest = sorted(alike.items(), key=lambda group: len(group[0]), reverse=True)
    return [x for _, group in richest for x in islice(filter(None, map(_shown, group)), _OF_EACH)][:_LOOKED_AT]


def _shown(same: Sequence[Exchange]) -> Exchange | None:
    """Of equal requests, the last whose prompt is shown with the answer."""
    return next((x for x in reversed(same) if x.turn is not None and x.prompt.ids is not None), None)


def _kinds(x: Exchange) -> frozenset[str]:
    messages = items(at(x.chat_request, "messages"))
    roles = {text(at(message, "role")) for message in messages}
    calls = {"calls" for message in messages if items(at(message, "tool_calls"))}
    return frozenset(roles | calls | ({"tools"} if items(at(x.chat_request, "tools")) else set()))


def _forms_of(x: Exchange) -> Iterator[PromptForm]:
    """The forms that give the very tokens of a prompt."""
    date = next(_values("date", [x]), None)
    tried: dict[Style, list[tuple[Sequence[Message], bool]]] = {}  # most readings of a request are the same messages
    for reading, forms in groupby(FORMS, key=lambda form: form.reading):
        typed = conversation_of(x.chat_request, reading, date=date)
        untyped = tuple(replace(message, content_type=None) if is_call(message) else message for message in typed)
        for form in forms:
            messages = typed if form.types_calls else untyped
            of_style = tried.setdefault(form.style, [])
            fits = next((fits for others, fits in of_style if others == messages), None)
            if fits is None:
                fits = _gives(x.prompt.ids or (), messages, form.style)
                of_style.append((messages, fits))
            if fits:
                yield form


def _gives(prompt: Sequence[int], messages: Sequence[Message], style: Style) -> bool:
    """Whether these messages in a style are the prompt; not rendered further than to the first that is not."""
    place = 0
    for rendered in each_rendered(messages, style):
        end = place + len(rendered.ids)
        if tuple(prompt[place:end]) != rendered.ids:
            return False
        place = end
    return tuple(prompt[place:]) == next_turn(Role.ASSISTANT)


def _values(name: str, exchanges: Iterable[Exchange]) -> Iterator[str]:
    for x in exchanges:
        found = _LINES[name].search(x.system_message.content) if x.system_message is not None else None
        if found is not None:
            yield found.group(1)
