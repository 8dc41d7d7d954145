import pytest

pytest.importorskip("jmespath", reason="the extra huggingface is not installed")

from harmony_ref.errors import HarmonyError
from harmony_ref.huggingface.response_schema import (
    ResponseMismatchError,
    ResponseSchemaError,
    SchemaProblem,
    SchemaRuleError,
    parse_response,
)

MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "thinking": {"type": "string", "x-regex": r"<think>(.*?)</think>"},
        "content": {"type": "string", "x-regex": r"(?:^|</think>)([^<]+)"},
        "tool_calls": {
            "type": "array",
            "x-regex-iterator": r"<call>(.*?)</call>",
            "items": {
                "type": "object",
                "x-parser": "json",
                "x-parser-args": {"transform": "{type: 'function', function: @}"},
                "properties": {
                    "type": {"type": "string"},
                    "function": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
                        "required": ["name"],
                    },
                },
            },
        },
    },
}


def test_a_response_becomes_a_message():
    response = '<think>Look\nit up.</think>One moment.<call>{"name": "f", "arguments": {"a": 1}}</call>'
    assert parse_response(response, MESSAGE) == {
        "role": "assistant",
        "thinking": "Look\nit up.",
        "content": "One moment.",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
    }


def test_a_response_without_any_of_it_is_an_empty_message():
    assert parse_response("", MESSAGE) == {"role": "assistant"}


def test_neither_schema_nor_response_is_changed():
    before = repr(MESSAGE)
    parse_response('<call>{"name": "f"}</call>', MESSAGE)
    assert repr(MESSAGE) == before


JSON = {"x-parser": "json"}
CALL = "/properties/tool_calls/items"
ERRORS = [
    ("a call that is not JSON", MESSAGE, "<call>{</call>", SchemaProblem.NOT_JSON, f"{CALL}/x-parser"),
    (
        "a call without a name",
        MESSAGE,
        "<call>{}</call>",
        SchemaProblem.MISSING,
        f"{CALL}/properties/function/required",
    ),
    (
        "a name that is a number",
        MESSAGE,
        '<call>{"name": 1}</call>',
        SchemaProblem.NOT_A_STRING,
        f"{CALL}/properties/function/properties/name",
    ),
    (
        "arguments that are a list",
        MESSAGE,
        '<call>{"name": "f", "arguments": [1]}</call>',
        SchemaProblem.NOT_AN_OBJECT,
        f"{CALL}/properties/function/properties/arguments",
    ),
    ("a text where an object is read", {"type": "object"}, "x", SchemaProblem.NO_PROPERTIES, ""),
    (
        "a name with a slash",
        {"type": "object", "properties": {"a/b~c": {"type": "integer"}}},
        "x",
        SchemaProblem.NOT_AN_INTEGER,
        "/properties/a~1b~0c",
    ),
    (
        "a substitution that is one text",
        {"x-regex-substitutions": ["a"]},
        "x",
        SchemaProblem.NOT_A_RULE,
        "/x-regex-substitutions/0",
    ),
    (
        "substitutions that are a text",
        {"x-regex-substitutions": "a"},
        "x",
        SchemaProblem.NOT_A_RULE,
        "/x-regex-substitutions",
    ),
    ("a bad pattern", {"x-regex": "("}, "x", SchemaProblem.BAD_PATTERN, "/x-regex"),
    ("a pattern that is a number", {"x-regex": 1}, "x", SchemaProblem.NOT_A_RULE, "/x-regex"),
    ("a repetition beyond all bounds", {"x-regex": "(a){99999999999}"}, "x", SchemaProblem.BAD_PATTERN, "/x-regex"),
    (
        "a replacement of a group by name",
        {"x-regex-substitutions": [["x", "\\g<a>"]]},
        "x",
        SchemaProblem.BAD_REPLACEMENT,
        "/x-regex-substitutions/0",
    ),
    (
        "items of a rule that is a text",
        {"type": "array", **JSON, "items": "x"},
        "[1]",
        SchemaProblem.NOT_A_RULE,
        "/items",
    ),
    (
        "places that are a number",
        {"type": "array", **JSON, "prefixItems": 1},
        "[1]",
        SchemaProblem.NOT_A_RULE,
        "/prefixItems",
    ),
    (
        "the second place",
        {"type": "array", **JSON, "prefixItems": [{}, {"type": "integer"}]},
        '[1, "x"]',
        SchemaProblem.NOT_AN_INTEGER,
        "/prefixItems/1",
    ),
    (
        "properties that are a list",
        {"type": "object", **JSON, "properties": []},
        "{}",
        SchemaProblem.NOT_A_RULE,
        "/properties",
    ),
    (
        "required that is a number",
        {"type": "object", **JSON, "required": 1},
        "{}",
        SchemaProblem.NOT_A_RULE,
        "/required",
    ),
    (
        "a member by additionalProperties",
        {"type": "object", **JSON, "additionalProperties": {"type": "boolean"}},
        '{"a": 1}',
        SchemaProblem.NOT_A_BOOLEAN,
        "/additionalProperties",
    ),
    (
        "a transform that is a number",
        {**JSON, "x-parser-args": {"transform": 1}},
        "{}",
        SchemaProblem.NOT_A_RULE,
        "/x-parser-args/transform",
    ),
    (
        "a transform of an infinity",
        {**JSON, "x-parser-args": {"transform": "ceil(@)"}},
        "Infinity",
        SchemaProblem.BAD_TRANSFORM,
        "/x-parser-args/transform",
    ),
    ("arguments that are a text", {**JSON, "x-parser-args": "x"}, "{}", SchemaProblem.NOT_A_RULE, "/x-parser-args"),
    ("a number of more digits than Python reads", JSON, "9" * 5000, SchemaProblem.NOT_JSON, "/x-parser"),
    ("a number too large for a float", {"type": "number", **JSON}, "1" + "0" * 400, SchemaProblem.NOT_A_NUMBER, ""),
    ("JSON of very many levels", JSON, "[" * 100_000 + "]" * 100_000, SchemaProblem.TOO_DEEP, ""),
]


@pytest.mark.parametrize(
    ("schema", "response", "problem", "pointer"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
def test_a_fault_is_reported_with_the_place_of_its_rule(schema, response, problem, pointer):
    with pytest.raises(ResponseSchemaError) as caught:
        parse_response(response, schema)
    assert (caught.value.problem, caught.value.pointer) == (problem, pointer)
    assert caught.value.expected
    assert str(caught.value).startswith(pointer or "(the whole schema)")
    assert isinstance(caught.value, HarmonyError)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [({"x-regex": "("}, SchemaRuleError), ({"type": "integer"}, ResponseMismatchError)],
    ids=["the schema's fault", "the response's fault"],
)
def test_the_class_tells_whose_fault_it_is(schema, kind):
    with pytest.raises(ResponseSchemaError) as caught:
        parse_response("x", schema)
    assert type(caught.value) is kind
