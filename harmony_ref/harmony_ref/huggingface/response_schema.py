"""Evaluate a Hugging Face response schema as transformers does, to compare it with Harmony.

    message = parse_response("<think>…</think>Hello", tokenizer_config["response_schema"])

A response schema is a JSON Schema with keywords (`x-regex`, `x-parser`, …) that parse a response from the whole text
down to the leaves. `harmony_ref.huggingface.response_extraction` documents the keywords.

1. A rule with `const` returns it for every value. Any other rule returns null for null.
2. The keywords transform the value. A pattern without a match returns null.
3. An `object` passes a text to each property, and drops properties without a result. It passes each member of an object
   to its property, or to `additionalProperties`; `default` replaces an absent member.
4. An `array` passes each item to `items`, or each to its rule of `prefixItems`. An empty value is an empty array.
5. `string`, `integer`, `number` and `boolean` convert a text; `any`, and a rule without a type, return the value.

    ResponseSchemaError             (a HarmonyError) the rule's JSON pointer, the problem, the expected value
    ├── SchemaRuleError             the rule is invalid for every response
    └── ResponseMismatchError       the rule does not fit the value

Source: the response-parsing guide of transformers and the code of 5.14.1, the last version with response schemas. Version 5.15.0
dropped them silently in favour of `response_template`, which is not supported here. The keywords `x-mapping` and
`x-mapping-regex` of 5.0.0, which no guide mentions, are ignored as any unknown keyword.
"""

from collections.abc import Callable, Mapping
from typing import Final

from harmony_ref.huggingface.response_extraction import NoMatchError, Rule, extract
from harmony_ref.huggingface.response_schema_errors import (
    ResponseMismatchError,
    ResponseSchemaError,
    SchemaProblem,
    SchemaRuleError,
)
from harmony_ref.json_value import Json

__all__ = ["ResponseMismatchError", "ResponseSchemaError", "SchemaProblem", "SchemaRuleError", "parse_response"]

_TRUE: Final = ("true", "1")
_FALSE: Final = ("false", "0")


def parse_response(response: str, schema: Mapping[str, Json]) -> Json:
    """Parse a response by a response schema, usually into a message `{"role", "content", "thinking", "tool_calls"}`.

    Args:
        response: the decoded completion, special tokens included.
        schema: `response_schema` of a tokenizer.

    Returns:
        A value of the schema's form; None if its outermost pattern has no match.

    Raises:
        ResponseSchemaError: one of its subclasses.
    """
    try:
        return _evaluate(response, schema, "")
    except RecursionError as error:
        raise ResponseMismatchError(
            SchemaProblem.TOO_DEEP, "schema or value", pointer="", expected="fewer levels"
        ) from error


def _evaluate(value: Json, rule: Json, at: str) -> Json:
    if not isinstance(rule, Mapping):
        raise SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(rule), pointer=at, expected="an object")
    if "const" in rule:
        return rule["const"]
    if value is None:
        return None
    try:
        value = extract(value, rule, at)
    except NoMatchError:
        return None
    kind = "any" if rule.get("type") is None else rule["type"]
    convert = _CONVERTERS.get(kind) if isinstance(kind, str) else None
    if convert is None:
        expected = ", ".join(_CONVERTERS)
        raise SchemaRuleError(SchemaProblem.UNKNOWN_TYPE, repr(kind), pointer=f"{at}/type", expected=expected)
    return convert(value, rule, at)


def _object(value: Json, rule: Rule, at: str) -> Json:
    match value:
        case str():
            members = _object_of_text(value, rule, at)
        case Mapping():
            members = _object_of_members(value, rule, at)
        case _:
            problem = SchemaProblem.NOT_AN_OBJECT
            raise ResponseMismatchError(problem, repr(value), pointer=at, expected="an object or a text")
    required = rule.get("required", [])
    if not isinstance(required, list | tuple):
        raise SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(required), pointer=f"{at}/required", expected="a list")
    missing = [str(name) for name in required if name not in members]
    if missing:
        names = ", ".join(missing)
        raise ResponseMismatchError(SchemaProblem.MISSING, names, pointer=f"{at}/required", expected="all of them")
    return members


def _object_of_text(text: str, rule: Rule, at: str) -> dict[str, Json]:
    if "properties" not in rule:
        raise SchemaRuleError(
            SchemaProblem.NO_PROPERTIES, repr(text), pointer=at, expected="properties that read the text, or a keyword"
        )
    values = {name: _evaluate(text, child, _pointer(at, name)) for name, child in _properties(rule, at).items()}
    return {name: value for name, value in values.items() if value is not None}


def _object_of_members(members: Mapping[str, Json], rule: Rule, at: str) -> dict[str, Json]:
    properties = _properties(rule, at)
    values: dict[str, Json] = {}
    for name, property_rule in properties.items():
        pointer = _pointer(at, name)
        if not isinstance(property_rule, Mapping):
            raise SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(property_rule), pointer=pointer, expected="an object")
        if "const" in property_rule:
            values[name] = property_rule["const"]
        elif name in members:
            values[name] = _evaluate(members[name], property_rule, pointer)
        elif "default" in property_rule:
            values[name] = property_rule["default"]
    additional = rule.get("additionalProperties", True)
    if additional is not False:
        child: Rule = additional if isinstance(additional, Mapping) else {}
        for name, value in members.items():
            if name not in properties:
                values[name] = _evaluate(value, child, f"{at}/additionalProperties")
    return values


def _properties(rule: Rule, at: str) -> Mapping[str, Json]:
    properties = rule.get("properties", {})
    if isinstance(properties, Mapping):
        return properties
    pointer = f"{at}/properties"
    raise SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(properties), pointer=pointer, expected="an object")


def _array(value: Json, rule: Rule, at: str) -> Json:
    if not value:
        return []
    if "items" in rule:
        return [_evaluate(item, rule["items"], f"{at}/items") for item in _items(value, at)]
    if "prefixItems" not in rule:
        problem = SchemaProblem.NO_ITEMS
        raise SchemaRuleError(problem, "neither of them", pointer=at, expected="items or prefixItems")
    rules = rule["prefixItems"]
    if not isinstance(rules, list | tuple):
        pointer = f"{at}/prefixItems"
        raise SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(rules), pointer=pointer, expected="a list")
    items = [value] if len(rules) == 1 and not isinstance(value, list) else _items(value, at)
    if len(items) != len(rules):
        raise ResponseMismatchError(
            SchemaProblem.WRONG_LENGTH, f"{len(items)} items", pointer=f"{at}/prefixItems", expected=f"{len(rules)}"
        )
    return [_evaluate(item, rules[index], f"{at}/prefixItems/{index}") for index, item in enumerate(items)]


def _items(value: Json, at: str) -> list[Json]:
    if isinstance(value, list):
        return value
    raise ResponseMismatchError(SchemaProblem.NOT_AN_ARRAY, repr(value), pointer=at, expected="an array")


def _string(value: Json, _: Rule, at: str) -> Json:
    if isinstance(value, str):
        return value
    raise ResponseMismatchError(SchemaProblem.NOT_A_STRING, repr(value), pointer=at, expected="a text")


def _integer(value: Json, _: Rule, at: str) -> Json:
    if isinstance(value, int):
        return value
    try:
        if isinstance(value, str):
            return int(value)
    except ValueError:
        pass
    raise ResponseMismatchError(
        SchemaProblem.NOT_AN_INTEGER, repr(value), pointer=at, expected="an integer or its text"
    )


def _number(value: Json, _: Rule, at: str) -> Json:
    try:
        if isinstance(value, str | int | float):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise ResponseMismatchError(SchemaProblem.NOT_A_NUMBER, repr(value), pointer=at, expected="a number or its text")


def _boolean(value: Json, _: Rule, at: str) -> Json:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    expected = "a boolean, or one of " + ", ".join((*_TRUE, *_FALSE))
    raise ResponseMismatchError(SchemaProblem.NOT_A_BOOLEAN, repr(value), pointer=at, expected=expected)


_CONVERTERS: Final[Mapping[str, Callable[[Json, Rule, str], Json]]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "any": lambda value, _, __: value,
}


def _pointer(at: str, name: str) -> str:
    return f"{at}/properties/{name.replace('~', '~0').replace('/', '~1')}"
