"""Words and patterns of the checks: what they look for in a text. New ones are found by themselves."""

import importlib
import pkgutil
import re
from functools import cache
from types import CodeType, FunctionType

from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

import harmony_conformance

_SEARCHED = ("apis", "checks", "evidence", "judge", "prompts")


def _modules():
    for name in _SEARCHED:
        package = importlib.import_module(f"{harmony_conformance.__name__}.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def _strings(value, seen):
    if id(value) in seen:
        return
    seen.add(id(value))
    match value:
        case str():
            yield value
        case tuple() | list() | set() | frozenset():
            for one in value:
                yield from _strings(one, seen)
        case dict():
            for name, one in value.items():
                yield from _strings(name, seen)
                yield from _strings(one, seen)
        case CodeType():
            for one in value.co_consts:
                yield from _strings(one, seen)
        case FunctionType():
            yield from _strings(value.__code__, seen)
        case _:
            return


@cache
def words():
    """Return the short texts in the code and the tables of the checks."""
    found = set()
    for module in _modules():
        for value in vars(module).values():
            run = getattr(value, "run", getattr(value, "holds", value))
            found |= set(_strings(getattr(run, "__wrapped__", run), set()))
    return sorted(word for word in found if 1 <= len(word) <= 40 and word.isprintable())


@cache
def patterns():
    """Return the patterns of the checks of which Hypothesis can make examples."""
    found = {
        (value.pattern, value.flags): value
        for module in _modules()
        for value in vars(module).values()
        if isinstance(value, re.Pattern) and isinstance(value.pattern, str)
    }
    return [pattern for _, pattern in sorted(found.items()) if _can_be_made(pattern)]


def _can_be_made(pattern):
    try:
        st.from_regex(pattern).validate()
    except (HypothesisException, ValueError, NotImplementedError):
        return False
    return True


def texts():
    """Return a strategy of texts that are plain, or have words of the checks, or match one of their patterns."""
    word = st.sampled_from(words()) | st.sampled_from(
        ["\ufffd", "\u2019", "\U0001f600", "\\", '"', "<", "User: And Italy?"]
    )
    plain = st.sampled_from(
        ["Hello.", "It is a fine day, and the sun is out over Oslo.", "We", "The user asks", "1 + 1", ":"]
    )
    between = st.sampled_from(["", " ", "\n", ". ", ": ", "`"])
    some = st.lists(st.tuples(word | plain, between), min_size=1, max_size=4).map(
        lambda parts: "".join(map("".join, parts))
    )
    matching = st.sampled_from(patterns()).flatmap(lambda pattern: st.from_regex(pattern).map(lambda text: text[:400]))
    doubled = some.map(lambda text: text * 2)
    return plain | some | some | matching | doubled
