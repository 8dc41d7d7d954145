"""Apply the `x-` keywords of a response schema to the value of a rule.

    x-regex-substitutions   [[pattern, replacement], …]: re.sub, in order
    x-regex                 re.search: its only group, or the named groups as an object; no match: null
    x-regex-iterator        re.finditer, in an array: the same for each match; no match: null
    x-regex-key-value       re.finditer, in an object: the groups `key` and `value`; no match: null
    x-parser                json, or gemma4-tool-call: JSON with bare keys and texts between `<|"|>`
    x-parser-args           transform: a JMESPath expression; allow_non_json: return a text that is not JSON

Keywords apply in this order. In every pattern `.` also matches a newline. Source: the response-parsing guide of
transformers and the code of 5.14.1, the last version with response schemas.

Patterns are those of Python's `re`, which has no time limit. As in transformers, a pattern such as `(a+)+$` takes
exponential time on some responses: for an untrusted schema use `harmony_ref.huggingface.bounded`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from harmony_ref.extras import install_command
from harmony_ref.huggingface.response_schema_errors import ResponseMismatchError, SchemaProblem, SchemaRuleError
from harmony_ref.json_value import Json

try:
    import jmespath
    import jmespath.exceptions
except ImportError as error:
    raise ImportError(
        f"response schemas need jmespath, which is not installed: {install_command('huggingface')}"
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
    """Apply the keywords of the rule at JSON pointer `at` to a value, and return the result.

    Raises:
        NoMatchError: a pattern has no match.
        ResponseSchemaError: a keyword is invalid or does not fit the value.
    """
    if any(name in rule for name in _REGEX_KEYWORDS):
        value = _text(value, "patterns", at)
        value = _substitute(value, rule, f"{at}/x-regex-substitutions")
    for name, keyword in _KEYWORDS.items():
        argument = rule.get(name)
        if argument is not None:
            value = keyword(value, argument, rule, f"{at}/{name}")
    return _parse(value, rule, at) if "x-parser" in rule else value


def _substitute(text: str, rule: Rule, at: str) -> str:
    substitutions = rule.get("x-regex-substitutions", [])
    if not isinstance(substitutions, list | tuple):
        raise _not_a_rule(substitutions, at, "pairs of pattern and replacement")
    for index, pair in enumerate(substitutions):
        pointer = f"{at}/{index}"
        match pair:
            case [str() as pattern, str() as replacement, *_]:
                compiled = _pattern(pattern, pointer)
            case _:
                raise _not_a_rule(pair, pointer, "a pattern and a replacement")
        try:
            text = compiled.sub(replacement, text)
        except (re.error, IndexError) as error:
            problem = SchemaProblem.BAD_REPLACEMENT
            raise SchemaRuleError(problem, str(error), pointer=pointer, expected="a replacement of re.sub") from error
    return text


def _search(value: Json, argument: Json, _: Rule, at: str) -> Json:
    match = _pattern(argument, at).search(_text(value, "a pattern", at))
    if match is None:
        raise NoMatchError
    return _groups(match, at)


def _iterate(value: Json, argument: Json, rule: Rule, at: str) -> Json:
    _check_type("array", SchemaProblem.ITERATOR_OUTSIDE_ARRAY, rule, at)
    items = [_groups(match, at) for match in _matches(value, argument, at)]
    if not items:
        raise NoMatchError
    return items


def _key_values(value: Json, argument: Json, rule: Rule, at: str) -> Json:
    _check_type("object", SchemaProblem.KEY_VALUE_OUTSIDE_OBJECT, rule, at)
    members: dict[str, Json] = {}
    for match in _matches(value, argument, at):
        match _groups(match, at):
            case {"key": str() as key, "value": member}:
                members[key] = member
            case groups:
                problem = SchemaProblem.NO_KEY_AND_VALUE
                raise SchemaRuleError(problem, repr(groups), pointer=at, expected="named groups `key` and `value`")
    if not members:
        raise NoMatchError
    return members


_KEYWORDS: Final[Mapping[str, Callable[[Json, Json, Rule, str], Json]]] = {
    "x-regex": _search,
    "x-regex-iterator": _iterate,
    "x-regex-key-value": _key_values,
}


def _check_type(name: str, problem: SchemaProblem, rule: Rule, at: str) -> None:
    if rule.get("type") != name:
        raise SchemaRuleError(problem, f"type {rule.get('type')!r}", pointer=at, expected=f"type {name!r}")


def _matches(value: Json, argument: Json, at: str) -> Iterator[re.Match[str]]:
    return _pattern(argument, at).finditer(_text(value, "a pattern", at))


def _groups(match: re.Match[str], at: str) -> Json:
    """Return the named groups of the match that have a value, or the value of the only group."""
    if named := match.groupdict():
        return {name: value for name, value in named.items() if value is not None}
    match match.groups():
        case [value]:
            return value
        case []:
            problem = SchemaProblem.NO_GROUP
        case _:
            problem = SchemaProblem.SEVERAL_GROUPS
    raise SchemaRuleError(problem, match.re.pattern, pointer=at, expected="one group, or named groups")


def _parse(value: Json, rule: Rule, at: str) -> Json:
    name = rule["x-parser"]
    to_json = _TO_JSON.get(name) if isinstance(name, str) else None
    if to_json is None:
        problem = SchemaProblem.UNKNOWN_PARSER
        raise SchemaRuleError(problem, repr(name), pointer=f"{at}/x-parser", expected=" or ".join(_TO_JSON))
    text = to_json(_text(value, "a parser", f"{at}/x-parser"))
    arguments = rule.get("x-parser-args", {})
    if not isinstance(arguments, Mapping):
        raise _not_a_rule(arguments, f"{at}/x-parser-args", "an object")
    parsed = _json(text, f"{at}/x-parser", allow_non_json=bool(arguments.get("allow_non_json", False)))
    transform = arguments.get("transform")
    return parsed if transform is None else _transform(parsed, transform, f"{at}/x-parser-args/transform")


def _json(text: str, at: str, *, allow_non_json: bool) -> Json:
    try:
        parsed: Json = json.loads(text)
    except json.JSONDecodeError as error:
        if allow_non_json:
            return text
        raise ResponseMismatchError(
            SchemaProblem.NOT_JSON, f"{error} in {text!r}", pointer=at, expected="JSON, or allow_non_json"
        ) from error
    except ValueError as error:  # a number with more digits than Python's limit
        raise ResponseMismatchError(SchemaProblem.NOT_JSON, str(error), pointer=at, expected="JSON") from error
    return parsed


def _transform(value: Json, expression: Json, at: str) -> Json:
    expected = "a JMESPath expression that suits the value"
    if not isinstance(expression, str):
        raise _not_a_rule(expression, at, expected)
    try:
        transformed: Json = jmespath.search(expression, value)
    except _BAD_TRANSFORM as error:
        raise SchemaRuleError(SchemaProblem.BAD_TRANSFORM, str(error), pointer=at, expected=expected) from error
    return transformed


def _gemma_to_json(text: str) -> str:
    """Return the JSON of a call of Gemma 4 such as `{city:<|"|>Paris<|"|>}`."""
    strings: list[str] = []

    def replace(match: re.Match[str]) -> str:
        strings.append(match.group(1))
        return f"\x00{len(strings) - 1}\x00"

    text = _BARE_KEY.sub(r'"\1":', _GEMMA_TEXT.sub(replace, text))
    for index, string in enumerate(strings):
        text = text.replace(f"\x00{index}\x00", json.dumps(string))
    return text


_TO_JSON: Final[Mapping[str, Callable[[str], str]]] = {"json": str, "gemma4-tool-call": _gemma_to_json}
"""Functions that convert the text of a parser to JSON."""


def _pattern(pattern: Json, at: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise _not_a_rule(pattern, at, "a pattern")
    try:
        return re.compile(pattern, re.DOTALL)
    except _BAD_PATTERN as error:
        problem = SchemaProblem.BAD_PATTERN
        raise SchemaRuleError(problem, str(error), pointer=at, expected="a pattern of re") from error


def _text(value: Json, reader: str, at: str) -> str:
    if isinstance(value, str):
        return value
    raise ResponseMismatchError(SchemaProblem.NOT_TEXT, repr(value), pointer=at, expected=f"a text for {reader}")


def _not_a_rule(value: Json, at: str, expected: str) -> SchemaRuleError:
    return SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(value), pointer=at, expected=expected)
