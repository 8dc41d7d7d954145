"""A Hugging Face response schema evaluated as transformers evaluates it, to compare it with Harmony.

    message = parse_response("<think>…</think>Hello", tokenizer_config["response_schema"])

A response schema is a JSON Schema with keywords (`x-regex`, `x-parser`, …, see `harmony_ref.huggingface.response_extraction`) that take
a response apart, from the whole text down to the leaves:

1. A rule with `const` gives it, whatever it is given. A rule that is given nothing gives nothing.
2. The keywords make a new value of the value. A pattern without a match gives nothing.
3. An `object` hands a text to each property whole, and leaves out those that find nothing. Of an object it hands each
   member to its property, or to `additionalProperties`; `default` stands in for a member that is not there.
4. An `array` hands each item to `items`, or one by one to `prefixItems`. Nothing, or nothing in it, is an empty array.
5. `string`, `integer`, `number` and `boolean` convert a text; `any`, and a rule without a type, leave the value as it is.

    ResponseSchemaError             (a HarmonyError) the rule's JSON pointer, the problem, what would have been right
    ├── SchemaRuleError             the rule can not be followed, whatever the response
    └── ResponseMismatchError       the rule met a value that it is not for

Source: the response-parsing guide of transformers, and what its 5.14.1 does, the last version that knows response schemas;
5.15.0 drops them without a word in favour of `response_template`, which is not supported here. Nor are the keywords
`x-mapping` and `x-mapping-regex`, which 5.0.0 still had and no guide names: like any unknown keyword they are ignored.
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
    """What a response says by a response schema, most often a message `{"role", "content", "thinking", "tool_calls"}`.

    Args:
        response: the decoded completion, special tokens included.
        schema: `response_schema` of a tokenizer.

    Returns:
        A value of the schema's form; None where its outermost pattern has no match.

    Raises:
        ResponseSchemaError: one of its kinds.
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
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        expected = ", ".join(_READERS)
        raise SchemaRuleError(SchemaProblem.UNKNOWN_TYPE, repr(kind), pointer=f"{at}/type", expected=expected)
    return reader(value, rule, at)


def _object(value: Json, rule: Rule, at: str) -> Json:
    match value:
        case str():
            found = _object_of_text(value, rule, at)
        case Mapping():
            found = _object_of_members(value, rule, at)
        case _:
            problem = SchemaProblem.NOT_AN_OBJECT
            raise ResponseMismatchError(problem, repr(value), pointer=at, expected="an object or a text")
    required = rule.get("required", [])
    if not isinstance(required, list | tuple):
        raise SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(required), pointer=f"{at}/required", expected="a list")
    missing = [name for name in required if name not in found]
    if missing:
        names = ", ".join(map(str, missing))
        raise ResponseMismatchError(SchemaProblem.MISSING, names, pointer=f"{at}/required", expected="all of them")
    return found


def _object_of_text(text: str, rule: Rule, at: str) -> dict[str, Json]:
    if "properties" not in rule:
        raise SchemaRuleError(
            SchemaProblem.NO_PROPERTIES, repr(text), pointer=at, expected="properties that read the text, or a keyword"
        )
    read = {name: _evaluate(text, child, _below(at, name)) for name, child in _properties(rule, at).items()}
    return {name: value for name, value in read.items() if value is not None}


def _object_of_members(members: Mapping[str, Json], rule: Rule, at: str) -> dict[str, Json]:
    properties = _properties(rule, at)
    found: dict[str, Json] = {}
    for name, property_rule in properties.items():
        here = _below(at, name)
        if not isinstance(property_rule, Mapping):
            raise SchemaRuleError(SchemaProblem.NOT_A_RULE, repr(property_rule), pointer=here, expected="an object")
        if "const" in property_rule:
            found[name] = property_rule["const"]
        elif name in members:
            found[name] = _evaluate(members[name], property_rule, here)
        elif "default" in property_rule:
            found[name] = property_rule["default"]
    additional = rule.get("additionalProperties", True)
    if additional is not False:
        child: Rule = additional if isinstance(additional, Mapping) else {}
        for name, value in members.items():
            if name not in properties:
                found[name] = _evaluate(value, child, f"{at}/additionalProperties")
    return found


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


def _any(value: Json, _: Rule, __: str) -> Json:
    return value


_READERS: Final[Mapping[str, Callable[[Json, Rule, str], Json]]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "any": _any,
}


def _below(at: str, name: str) -> str:
    return f"{at}/properties/{name.replace('~', '~0').replace('/', '~1')}"
