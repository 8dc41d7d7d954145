"""The example that explains a check: the simplest one, what the check says of it, and its answers in readable lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from json import dumps as written

from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.golden.data import Example, examples
from harmony_conformance.json_value import InvalidJsonError, loads
from harmony_conformance.judge.check import Finding, Outcome
from harmony_conformance.judge.judge import judge
from harmony_conformance.plugins.registry import find_check
from harmony_conformance.runtime.plural import number_of

_ANSWERS_SHOWN = 2
_MUCH = 4000
_LINES, _LINE_LENGTH, _SHORT = 30, 200, 80
_NUMBERS = re.compile(r"\[\s*\d+(?:,\s*\d+)*\s*\]")


def simplest_example(check: str, outcome: Outcome, instances: frozenset[str] = frozenset()) -> Example | None:
    """Return the example of a check with an outcome that is easiest to understand: if possible an instance of one of these entries, and typical."""
    of_check = [one for one in _all_examples() if one.check == check and one.outcome is outcome]

    def key(one: Example) -> tuple[bool, bool, tuple[int, ...]]:
        return instances.isdisjoint(one.defects), not one.is_typical, _difficulty(one)

    return min(of_check, key=key, default=None)


def _difficulty(example: Example) -> tuple[int, bool, bool, bool, int, int]:
    """Return a key that puts everyday exchanges first: one exchange of Chat Completions, answered at once and with a text.

    Among these, a special case needs a longer comment.
    """
    exchanges = [*example.series.exchanges.values()]
    return (
        len(exchanges),
        any(x.api != CHAT_COMPLETIONS.name for x in exchanges),
        any(x.events is not None for x in exchanges),
        not any(x.turn is not None and (x.turn.content or x.turn.reasoning or x.turn.tool_calls) for x in exchanges),
        sum(map(_size, exchanges)) // _MUCH,
        len(example.comment),
    )


def _size(x: Exchange) -> int:
    return len(x.request.body) + (len(x.response.body) if x.response is not None else 0)


def show_example(example: Example) -> Iterator[str]:
    """Yield the comment, what the check says, the first answers, and the path of the whole file."""
    path = f"golden/exchanges/{example.id}.json"
    yield example.comment
    if example.outcome is Outcome.FAIL:
        yield from _show_findings(_findings(example))
    bodies = [x.response.body for x in example.series.exchanges.values() if x.response is not None]
    yield from (_cut(_readable(body.decode("utf-8", "replace")), path) for body in bodies[:_ANSWERS_SHOWN] if body)
    yield path


def _findings(example: Example) -> tuple[Finding, ...]:
    rule = find_check(example.check)
    return () if rule is None else judge([example.series], [rule])[0].findings


def _show_findings(findings: tuple[Finding, ...]) -> Iterator[str]:
    """Yield the message of the first finding, and both of its sides: the fault may be in the prompt, which no answer shows."""
    for finding in findings[:1]:
        yield f"The check says: {finding.message}"
        for name, value in (("expected", finding.expected), ("got", finding.actual)):
            if value is not None:
                yield f"{name}: {_shorten(' '.join(value.split())) or 'nothing'}"


def _readable(body: str) -> str:
    """Return a JSON body over several lines, any other as it is."""
    try:
        value = loads(body)
    except InvalidJsonError:
        return body.strip()
    if len(body) <= _SHORT:
        return body
    return _NUMBERS.sub(lambda found: " ".join(found[0].split()), written(value, indent=2, ensure_ascii=False))


def _cut(body: str, path: str) -> str:
    lines = [_shorten(line) for line in body.splitlines()]
    if len(lines) <= _LINES:
        return "\n".join(lines)
    return "\n".join((*lines[:_LINES], f"… ({number_of(len(lines) - _LINES, 'more line')} in {path})"))


def _shorten(line: str) -> str:
    return line if len(line) <= _LINE_LENGTH else f"{line[:_LINE_LENGTH]}…"


@cache
def _all_examples() -> tuple[Example, ...]:
    return tuple(examples())
