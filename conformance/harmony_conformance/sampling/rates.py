"""Rates over the tries of a run: shares of tries or answers with a wanted property, each with its interval.

All properties are wanted, so a higher rate is better. A request without an answer counts in the denominator of `answered` and of the sets of tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from harmony_conformance.checks.helpers.json_schema import first_violation
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.by_text import Strength, marker_leaks, reasoning_leaks, word_leaks
from harmony_conformance.evidence.leaks.repetition import find_repeated_sentence
from harmony_conformance.json_value import InvalidJsonError, JsonObject, items, loads, text, value_at
from harmony_conformance.report.intervals import pass_at_k, pass_hat_k, wilson
from harmony_conformance.runtime.caching import cached_view
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.sampling.graders import Grade, is_in_script
from harmony_conformance.sampling.sampler import TaskTry, without_views
from harmony_conformance.sampling.task import Task, read_tasks

EFFORTS = ("low", "medium", "high")
"""Efforts in the order of the reasoning that they ask for."""
_SCRIPTS = (
    ("LATIN",),
    ("CYRILLIC",),
    ("HIRAGANA", "KATAKANA", "CJK"),
    ("HANGUL",),
    ("ARABIC",),
    ("DEVANAGARI",),
    ("GREEK",),
    ("HEBREW",),
    ("THAI",),
)
"""Writing systems by the names of their letters in Unicode."""
_FEWEST_LETTERS = 4
_KINDS = MappingProxyType(
    {
        ("tools", "required"): "tasks whose request demands a call",
        ("tools", "named"): "tasks whose request demands a call of one function",
        ("tools", "none"): "tasks whose request forbids calls",
        ("tools", "auto"): "tasks whose request leaves a call to the model",
        **{("effort", effort): f"tasks at effort {effort}" for effort in EFFORTS},
    }
)
"""The tasks of a kind, by set and kind, where the name of the kind does not describe them."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share of `of` cases. `apart`: cases that neither support nor contradict, such as an answer without a call that was optional."""

    name: str
    about: str
    count: int
    of: int
    apart: int = 0

    @property
    def share(self) -> float | None:
        """The share, None of 0 cases."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson(self.count, self.of)

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        low, high = self.interval
        return {
            "name": self.name,
            "about": self.about,
            "count": self.count,
            "of": self.of,
            "apart": self.apart,
            "share": self.share,
            "interval": [low, high],
        }


def all_rates(samples: Sequence[TaskTry]) -> tuple[Rate, ...]:
    """Return the rates that have a case: the sets of tasks, the groups within them, then those of all answers."""
    return tuple(
        rate for rate in (*_of_tasks(samples), *_of_efforts(samples), *_of_answers(samples)) if rate.of or rate.apart
    )


def _of_tasks(samples: Sequence[TaskTry]) -> Iterator[Rate]:
    sets = list(dict.fromkeys(sample.task.set for sample in samples if sample.task.grade))
    for its_set in sets:
        members = [sample for sample in samples if sample.task.set == its_set]
        yield _graded(its_set, "tasks of this set that were solved", members)
        kinds = list(dict.fromkeys(sample.task.kind for sample in members))
        for kind in kinds if len(kinds) > 1 else ():
            about = _KINDS.get((its_set, kind), f"tasks of the kind {kind!r}")
            yield _graded(f"{its_set}.{kind}", about, [one for one in members if one.task.kind == kind])


def _graded(name: str, about: str, samples: Sequence[TaskTry]) -> Rate:
    apart = sum(sample.grade is Grade.OTHERWISE for sample in samples)
    solved = sum(sample.grade is Grade.SOLVED for sample in samples)
    return Rate(name=name, about=about, count=solved, of=len(samples) - apart, apart=apart)


def _of_efforts(samples: Sequence[TaskTry]) -> Iterator[Rate]:
    """Compare the reasoning of tries that differ in the effort alone: the task `ID, low` with `ID, medium` and so on."""
    found: dict[tuple[str, int], dict[str, ReasoningLength]] = defaultdict(dict)
    for sample in samples:
        effort = text(value_at(sample.task.request, "reasoning_effort")) if sample.task.grade else ""
        if effort:
            found[sample.task.id.rpartition(",")[0], sample.attempt][effort] = _reasoning_of(sample)
    for less, more in pairwise(EFFORTS):
        pairs = ((its[less], its[more]) for its in found.values() if less in its and more in its)
        both = [holds for one, other in pairs if (holds := one.is_below(other)) is not None]
        about = f"tries with more reasoning at effort {more} than at {less}"
        yield Rate(name=f"effort.{less}-{more}", about=about, count=sum(both), of=len(both))


@dataclass(frozen=True)
class ReasoningLength:
    """The length of a reasoning, None where it is unknown.

    Attributes:
        tokens: The reasoning tokens that the server reports. A reported 0 is no count if the answer has a reasoning.
        characters: The length of the text.
    """

    tokens: int | None
    characters: int | None

    def is_below(self, other: ReasoningLength) -> bool | None:
        """Return True if it is shorter, in a unit that both have. None without one."""
        if self.tokens is not None and other.tokens is not None:
            return self.tokens < other.tokens
        if self.characters is not None and other.characters is not None:
            return self.characters < other.characters
        return None


def reasoning_length(x: Exchange) -> ReasoningLength:
    """Return the length of the reasoning of an answer."""
    if (turn := x.turn) is None:
        return ReasoningLength(None, None)
    tokens = turn.usage.reasoning_tokens if turn.usage is not None else None
    characters = len(turn.reasoning) if turn.reasoning is not None else None
    return ReasoningLength(None if characters and not tokens else tokens, characters)


def _of_answers(samples: Sequence[TaskTry]) -> Iterator[Rate]:
    for name, (about, _) in _ANSWER_RATES.items():
        judged = [holds for sample in samples for holds in _properties(sample)[name]]
        yield Rate(name=name, about=about, count=sum(judged), of=len(judged))


@cached_view  # the rates are asked for after each round, and again for each report
def _properties(sample: TaskTry) -> Mapping[str, tuple[bool, ...]]:
    """Return which of its answers have each property."""
    exchanges = [*map(without_views, sample.exchanges)]  # what is derived from them is not kept
    return {
        name: tuple(holds for x in exchanges for holds in judge(sample.task, x))
        for name, (_, judge) in _ANSWER_RATES.items()
    }


@cached_view
def _reasoning_of(sample: TaskTry) -> ReasoningLength:
    return reasoning_length(without_views(sample.exchanges[-1]))


def _answered(_: Task, x: Exchange) -> Iterable[bool]:
    yield x.turn is not None and x.failure is None


def _not_empty(_: Task, x: Exchange) -> Iterable[bool]:
    if (turn := x.turn) is not None and not turn.is_truncated:
        yield turn.has_answer


def _finished(_: Task, x: Exchange) -> Iterable[bool]:
    if (turn := x.turn) is not None:
        yield x.failure is None and turn.finish_reason is not None and not turn.is_truncated


def _reasoned(_: Task, x: Exchange) -> Iterable[bool]:
    if (turn := x.turn) is not None:
        yield bool(turn.reasoning)


def _no_leak(_: Task, x: Exchange) -> Iterable[bool]:
    if x.turn is not None:
        leaks = (leak for find in (marker_leaks, word_leaks, reasoning_leaks) for leak in find(x, by_ids=False))
        yield not any(leak.strength is Strength.PROVEN for leak in leaks)


def _no_loop(_: Task, x: Exchange) -> Iterable[bool]:
    if (turn := x.turn) is not None and turn.reasoning:
        yield find_repeated_sentence(turn.reasoning) is None


def _language(task: Task, x: Exchange) -> Iterable[bool]:
    """Compare the writing system of an answer with that of the last question. Languages that share one count as one."""
    if (turn := x.turn) is None or sum(map(str.isalpha, turn.content or "")) < _FEWEST_LETTERS:
        return
    messages = [one for one in items(value_at(task.request, "messages")) if value_at(one, "role") == "user"]
    question = text(value_at(messages[-1], "content")) if messages else ""
    script = next((names for names in _SCRIPTS if is_in_script(question, names)), None)
    if script is not None:
        yield is_in_script(turn.content or "", script)


def _call_made(task: Task, x: Exchange) -> Iterable[bool]:
    if task.demands_call and (turn := x.turn) is not None:
        yield bool(turn.tool_calls)


def _arguments_json(_: Task, x: Exchange) -> Iterable[bool]:
    for call in x.turn.tool_calls if x.turn is not None else ():
        try:
            yield isinstance(loads(call.arguments), dict)
        except InvalidJsonError:
            yield False


def _name_offered(task: Task, x: Exchange) -> Iterable[bool]:
    for call in x.turn.tool_calls if x.turn is not None else ():
        yield call.name in function_schemas(task)


def _schema_met(task: Task, x: Exchange) -> Iterable[bool]:
    for call in x.turn.tool_calls if x.turn is not None else ():
        if call.name in function_schemas(task):
            try:
                yield first_violation(loads(call.arguments), function_schemas(task)[call.name]) is None
            except InvalidJsonError:
                yield False


def function_schemas(task: Task) -> JsonObject:
    """Return the schema of the arguments of each function that the task offers."""
    functions = (value_at(tool, "function") for tool in items(value_at(task.request, "tools")))
    return {text(value_at(function, "name")): value_at(function, "parameters") for function in functions}


_ANSWER_RATES: Mapping[str, tuple[str, Callable[[Task, Exchange], Iterable[bool]]]] = MappingProxyType(
    {
        "answered": ("requests with an answer; timeouts and errors are the others", _answered),
        "not_empty": ("answers with content or a call, of those that the limit did not cut", _not_empty),
        "finished": ("answers that neither the limit nor the connection cut", _finished),
        "reasoned": ("answers with reasoning", _reasoned),
        "no_leak": ("answers without a marker, channel word or thought in the content", _no_leak),
        "no_loop": ("thoughts that do not repeat a sentence ten times", _no_loop),
        "language": ("answers in the writing system of the question", _language),
        "call_made": ("answers with a call, where the request demands one", _call_made),
        "arguments_json": ("calls whose arguments are a JSON object", _arguments_json),
        "name_offered": ("calls of a function that the request offers", _name_offered),
        "schema_met": ("calls whose arguments match the function's schema", _schema_met),
    }
)


def rate_names() -> frozenset[str]:
    """Return the names of all rates that a run can have."""
    sets = {task.set for tasks in read_tasks().values() for task in tasks}
    kinds = {f"{task.set}.{task.kind}" for tasks in read_tasks().values() for task in tasks}
    return frozenset({*sets, *kinds, *_ANSWER_RATES, *(f"effort.{less}-{more}" for less, more in pairwise(EFFORTS))})


def describe_rate(name: str) -> tuple[str, ...]:
    """Return the meaning of a rate, and the tasks of its set. Empty for a name that no rate has."""
    if name in _ANSWER_RATES:
        return (f"Share of {_ANSWER_RATES[name][0]}.",)
    for less, more in pairwise(EFFORTS):
        if name == f"effort.{less}-{more}":
            return (f"Share of tries with more reasoning at effort {more} than at {less}.",)
    tasks = [
        task for of_set in read_tasks().values() for task in of_set if name in {task.set, f"{task.set}.{task.kind}"}
    ]
    ids = sorted(task.id for task in tasks)
    return (f"Share of tries of {number_of(len(ids), 'task')} that were solved: {', '.join(ids)}.",) if ids else ()


def pass_rates(samples: Sequence[TaskTry]) -> JsonObject:
    """Return pass@k and pass^k of each set for k from 1 to the smallest number of tries, as means over its tasks."""
    tries: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if sample.grade is not Grade.OTHERWISE and sample.task.grade:
            tries[sample.task.set][sample.task.id].append(sample.grade is Grade.SOLVED)
    return {
        its_set: [
            {
                "k": k,
                "pass_at_k": _mean(pass_at_k(sum(one), len(one), k) for one in tasks.values()),
                "pass_hat_k": _mean(pass_hat_k(sum(one), len(one), k) for one in tasks.values()),
            }
            for k in range(1, min(map(len, tasks.values())) + 1)
        ]
        for its_set, tasks in tries.items()
    }


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)
