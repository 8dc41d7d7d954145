"""The `x-` keywords of a response schema: what each makes of the value that its rule is given.

    x-regex-substitutions   [[pattern, replacement], …]: re.sub, one after the other
    x-regex                 re.search: its one group, or the named groups as an object; no match: nothing
    x-regex-iterator        re.finditer, in an array: the same for each match; no match: nothing
    x-regex-key-value       re.finditer, in an object: the groups `key` and `value`; no match: nothing
    x-parser                json, or gemma4-tool-call: JSON with bare keys and texts between `<|"|>`
    x-parser-args           transform: a JMESPath expression; allow_non_json: keep a text that is not JSON

They work in this order. In every pattern `.` also matches a newline. Source: the response-parsing guide of transformers,
and what its 5.14.1 does (the last version that knows response schemas).

Patterns are those of Python's `re`, which has no time limit: a pattern such as `(a+)+$` takes exponential time on some
responses, here as in transformers. A stranger's schema is a program, and wants a process of its own.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from harmony_ref.huggingface.response_schema_errors import ResponseMismatchError, SchemaProblem, SchemaRuleError
from harmony_ref.json_value import Json

try:
    import jmespath
    import jmespath.exceptions
except ImportError as error:
    raise ImportError(
        "response schemas need jmespath, which is not installed: pip install 'harmony-conformance[huggingface]'"
    ) from error

_REGEX_KEYWORDS: Final = ("x-regex", "x-regex-iterator", "x-regex-key-value", "x-regex-substitutions")
_GEMMA_TEXT: Final = re.compile(r'<\|"\|>(.*?)<\|"\|>', re.DOTALL)
_BARE_KEY: Final = re.compile(r"(?<=[{,])(\w+):")
_BAD_TRANSFORM: Final = (
    jmespath.exceptions.JMESPathError,
    ArithmeticError,  # ceil of an infinity
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
_BAD_PATTERN: Final = (re.error, TypeError, OverflowError, RecursionError)

Rule: TypeAlias = Mapping[str, Json]
"""One node of a schema."""


class NoMatchError(Exception):
    """A pattern has no match."""


def extract(value: Json, rule: Rule, at: str) -> Json:
    """What the keywords of this rule make of a value.

    Args:
        value: what the rule is given.
        rule: the node.
        at: its JSON pointer.

    Raises:
        NothingFound: a pattern has no match.
        ResponseSchemaError: a keyword can not be followed.
    """
    if any(name in rule for name in _REGEX_KEYWORDS):
        value = _text(value, "patterns", at)
        value = _substituted(value, rule, f"{at}/x-regex-substitutions")
    for name, keyword in _KEYWORDS.items():
        argument = rule.get(name)
        if argument is not None:
            value = keyword(value, argument, rule, f"{at}/{name}")
    if "x-parser" in rule:
        value = _parsed(value, rule, at)
    return value


def _substituted(text: str, rule: Rule, at: str) -> str:
    substitutions = rule.get("x-regex-substitutions", [])
    if not isinstance(substitutions, list | tuple):
        raise _no_rule(substitutions, at, "pairs of pattern and replacement")
    for index, pair in enumerate(substitutions):
        here = f"{at}/{index}"
        match pair:
            case [str() as pattern, str() as replacement, *_]:
                compiled = _pattern(pattern, here)
            case _:
                raise _no_rule(pair, here, "a pattern and a replacement")
        try:
            text = compiled.sub(replacement, text)
        except (re.error, IndexError) as error:
            problem = SchemaProblem.BAD_REPLACEMENT
            raise SchemaRuleError(problem, str(error), pointer=here, expected="a replacement of re.sub") from error
    return text


def _searched(value: Json, argument: Json, _: Rule, at: str) -> Json:
    match = _pattern(argument, at).search(_text(value, "a pattern", at))
    if match is None:
        raise NoMatchError
    return _groups(match, at)


def _iterated(value: Json, argument: Json, rule: Rule, at: str) -> Json:
    if rule.get("type") != "array":
        problem = SchemaProblem.ITERATOR_OUTSIDE_ARRAY
        raise SchemaRuleError(problem, f"type {rule.get('type')!r}", pointer=at, expected="type 'array'")
    found = [_groups(match, at) for match in _matches(value, argument, at)]
    if not found:
        raise NoMatchError
    return found


def _key_values(value: Json, argument: Json, rule: Rule, at: str) -> Json:
    if rule.get("type") != "object":
        problem = SchemaProblem.KEY_VALUE_OUTSIDE_OBJECT
        raise SchemaRuleError(problem, f"type {rule.get('type')!r}", pointer=at, expected="type 'object'")
    found: dict[str, Json] = {}
    for match in _matches(value, argument, at):
        match _groups(match, at):
            case {"key": str() as key, "value": member}:
                found[key] = member
            case groups:
                problem = SchemaProblem.NO_KEY_AND_VALUE
                raise SchemaRuleError(problem, repr(groups), pointer=at, expected="named groups `key` and `value`")
    if not found:
        raise NoMatchError
    return found


_KEYWORDS: Final[Mapping[str, Callable[[Json, Json, Rule, str], Json]]] = {
    "x-regex": _searched,
    "x-regex-iterator": _iterated,
    "x-regex-key-value": _key_values,
}


def _matches(value: Json, argument: Json, at: str) -> Iterator[re.Match[str]]:
    return _pattern(argument, at).finditer(_text(value, "a pattern", at))


def _groups(match: re.Match[str], at: str) -> Json:
    """The named groups that took part in the match, or the value of the one group."""
    named = match.groupdict()
    if named:
        return {name: value for name, value in named.items() if value is not None}
    match match.groups():
        case [value]:
            return value
        case []:
            problem = SchemaProblem.NO_GROUP
        case _:
            problem = SchemaProblem.SEVERAL_GROUPS
    raise SchemaRuleError(problem, match.re.pattern, pointer=at, expected="one group, or named groups")


def _parsed(value: Json, rule: Rule, at: str) -> Json:
    name = rule["x-parser"]
    as_json = _JSON_PARSERS.get(name) if isinstance(name, str) else None
    if as_json is None:
        problem = SchemaProblem.UNKNOWN_PARSER
        expected = " or ".join(_JSON_PARSERS)
        raise SchemaRuleError(problem, repr(name), pointer=f"{at}/x-parser", expected=expected)
    text = as_json(_text(value, "a parser", f"{at}/x-parser"))
    arguments = rule.get("x-parser-args", {})
    if not isinstance(arguments, Mapping):
        raise _no_rule(arguments, f"{at}/x-parser-args", "an object")
    parsed = _json(text, f"{at}/x-parser", keep_text=bool(arguments.get("allow_non_json", False)))
    transform = arguments.get("transform")
    return parsed if transform is None else _transformed(parsed, transform, f"{at}/x-parser-args/transform")


def _json(text: str, at: str, *, keep_text: bool) -> Json:
    try:
        parsed: Json = json.loads(text)
    except json.JSONDecodeError as error:
        if keep_text:
            return text
        raise ResponseMismatchError(
            SchemaProblem.NOT_JSON, f"{error} in {text!r}", pointer=at, expected="JSON, or allow_non_json"
        ) from error
    except ValueError as error:  # a number of more digits than Python reads
        raise ResponseMismatchError(SchemaProblem.NOT_JSON, str(error), pointer=at, expected="JSON") from error
    return parsed


def _transformed(value: Json, expression: Json, at: str) -> Json:
    expected = "a JMESPath expression that suits the value"
    if not isinstance(expression, str):
        raise _no_rule(expression, at, expected)
    try:
        transformed: Json = jmespath.search(expression, value)
    except _BAD_TRANSFORM as error:
        raise SchemaRuleError(SchemaProblem.BAD_TRANSFORM, str(error), pointer=at, expected=expected) from error
    return transformed


def _quoted(text: str) -> str:
    """JSON of what Gemma 4 writes: `{city:<|"|>Paris<|"|>}`."""
    texts: list[str] = []

    def keep(match: re.Match[str]) -> str:
        texts.append(match.group(1))
        return f"\x00{len(texts) - 1}\x00"

    text = _BARE_KEY.sub(r'"\1":', _GEMMA_TEXT.sub(keep, text))
    for index, kept in enumerate(texts):
        text = text.replace(f"\x00{index}\x00", json.dumps(kept))
    return text


_JSON_PARSERS: Final[Mapping[str, Callable[[str], str]]] = {"json": str, "gemma4-tool-call": _quoted}
"""Parsers by name, as what they turn the text into before it is read as JSON."""


def _pattern(pattern: Json, at: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise _no_rule(pattern, at, "a pattern")
    try:
        return re.compile(pattern, re.DOTALL)
    except _BAD_PATTERN as error:
        problem = SchemaProblem.BAD_PATTERN
        raise SchemaRuleError(problem, str(error), pointer=at, expected="a pattern of re") from error


def _text(value: Json, reader: str, at: str) -> str:
    if isinstance(value, str):
        return value
    raise ResponseMismatchError(SchemaProblem.NOT_TEXT, repr(value), pointer=at, expected=f"a text for {reader}")


def _no_rule(found: Json, at: str, expected: str) -> SchemaRuleError:
    return SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(found), pointer=at, expected=expected)
