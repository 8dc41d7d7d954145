import pytest

from harmony_ref import MessageError, json_schema_to_typescript
from harmony_ref.messages.json_numbers import json_text

NUMBERS = [
    (0, "0"),
    (-(2**63), "-9223372036854775808"),
    (2**64 - 1, "18446744073709551615"),
    (2**64, "1.8446744073709552e19"),
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (1.0, "1.0"),
    (12.5, "12.5"),
    (1e15, "1000000000000000.0"),
    (1e16, "1e16"),
    (1.5e300, "1.5e300"),
    (0.00001, "0.00001"),
    (1e-7, "1e-7"),
    (5e-324, "5e-324"),
    # The library's reader is one unit in the last place off.
    (-1.5432835417340557e88, "-1.5432835417340556e88"),
]


@pytest.mark.parametrize(("number", "text"), NUMBERS, ids=[text for _, text in NUMBERS])
def test_a_number_is_printed_as_the_library_prints_it(number, text):
    assert text == json_text(number)


@pytest.mark.parametrize(
    ("number", "problem"),
    [(float("nan"), "expected value"), (float("inf"), "expected value"), (10**400, "number out of range")],
    ids=["not a number", "infinity", "ten to the 400th"],
)
def test_a_number_that_json_cannot_carry_is_refused(number, problem):
    schema = {"type": "object", "properties": {"a": {"type": "number", "default": number}}}
    with pytest.raises(MessageError, match=problem):
        json_schema_to_typescript(schema)


def test_values_inside_a_default_are_compact_and_escaped():
    assert json_text({"b": [1, None, True, 'é\n\x01"/'], "a": {}}) == '{"b":[1,null,true,"é\\n\\u0001\\"/"],"a":{}}'


def test_a_tuple_stands_for_a_list():
    assert json_schema_to_typescript({"type": ["string", "null"]}) == json_schema_to_typescript(
        {"type": ("string", "null")}
    )


def test_lines_are_indented_by_the_given_prefix():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert json_schema_to_typescript(schema, "  ") == "{\n  a: string,\n  }"


def test_a_schema_that_is_nested_too_deep_is_refused_and_not_a_recursion_error():
    schema = {"type": "string"}
    for _ in range(20_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(MessageError, match="recursion limit exceeded"):
        json_schema_to_typescript(schema)
