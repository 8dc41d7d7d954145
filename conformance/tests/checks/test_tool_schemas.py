"""What a declaration has to tell of a schema: rows written by hand, and the spelling of other renderers."""

import pytest

from harmony_conformance.checks.rendering.tool_schemas import (
    find_missing_defaults,
    find_missing_descriptions,
    find_missing_types,
    parameters,
    place_of_enum,
)
from harmony_conformance.judge.check import Verdict
from harmony_conformance.prompts.declarations_in_prompt import official_tools_text, parse_declarations

STRING, NUMBER = {"type": "string"}, {"type": "number"}


def of(**properties):
    return {"type": "object", "properties": properties}


def needs(*names, **properties):
    return {**of(**properties), "required": list(names)}


NESTED = of(who=of(name=STRING, at={"type": "array", "items": of(x=NUMBER)}))
ENUM = of(unit={"type": "string", "enum": ["c", "f"], "default": "c"})


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        pytest.param(NESTED, [("who", 0), ("name", 1), ("at", 1), ("x", 3)], id="objects and items within"),
        pytest.param(of(a={"oneOf": [of(b=STRING), NUMBER]}), [("a", 0), ("b", 2)], id="alternatives"),
        pytest.param({"type": "array", "items": of(a=STRING)}, [], id="no object"),
        pytest.param({"oneOf": [of(a=STRING)]}, [], id="alternatives instead of an object"),
        pytest.param(None, [], id="none"),
        pytest.param({"properties": 7}, [], id="no schema"),
    ],
)
def test_parameters_of_all_depths(schema, names):
    assert [(found.name, found.depth) for found in parameters({"parameters": schema})] == names


def told(function, type_, comment="// d\n"):
    """What is found wanting in a declaration: the words of each finding, variants marked."""
    library = parse_declarations(official_tools_text([{"function": function}]))["f"]
    shown = parse_declarations(f"namespace functions {{\n\n{comment}type f = {type_} => any;\n\n}}")["f"]
    found = [
        one
        for rule in (find_missing_descriptions, find_missing_types, find_missing_defaults)
        for one in rule(function, shown, library, "")
    ]
    return [("variant: " if one.verdict is Verdict.VARIANT else "") + one.message for one in found]


@pytest.mark.parametrize(
    ("schema", "type_", "wanting"),
    [
        pytest.param(None, "()", [], id="no parameters"),
        pytest.param(of(), "()", [], id="an empty object as the template writes it"),
        pytest.param(needs("a", a=STRING), "(_: {\na: string\n})", [], id="the template's last comma"),
        pytest.param(ENUM, '(_: {\nunit?: "c" | "f", // default: c,\n})', [], id="the template's comma of a default"),
        pytest.param(NESTED, "(_: {\nwho?: \n   {\nname?: string,\nat?: {\nx?: number\n}[]\n}\n})", [], id="nested"),
        pytest.param(needs("a", a={"anyOf": [STRING]}), "(_: {\na: any\n})", [], id="any for anyOf"),
        pytest.param(of(a=STRING), "(_: { 'a'?: string })", [], id="a quoted name"),
        pytest.param(of(**{"a.b": STRING}), '(_: { "a.b"?: string })', [], id="a quoted name with a dot"),
        pytest.param(
            of(a={**STRING, "default": 'x"y\n'}), '(_: {\na?: string, // default: "x\\"y\\n"\n})', [], id="escapes"
        ),
        pytest.param(
            of(a=STRING, b=STRING),
            "(_: {\na?: string\n})",
            ["the parameter b of f is not declared in the prompt"],
            id="one parameter lost",
        ),
        pytest.param(
            of(a={**STRING, "description": "An A."}),
            "(_: {\na?: string\n})",
            ["a description of f is not in the prompt"],
            id="a description lost",
        ),
        pytest.param(
            needs("a", a=STRING),
            "(_: {\na?: string\n})",
            ["the required parameter a is declared as optional"],
            id="a mark turned round",
        ),
        pytest.param(
            of(a=STRING),
            "(_: {\na: string\n})",
            ["variant: the optional parameter a is declared as required"],
            id="no marks at all",
        ),
        pytest.param(
            of(a=NUMBER), "(_: {\na?: string\n})", ["the parameter a has another type in the prompt"], id="a type"
        ),
        pytest.param(
            ENUM,
            '(_: {\nunit?: "c" // default: c\n})',
            ["values of the parameter unit of f are not in the prompt"],
            id="a value lost",
        ),
        pytest.param(
            ENUM,
            '(_: {\nunit?: "c" | "f"\n})',
            ["the default of the parameter unit of f is not in the prompt"],
            id="a default lost",
        ),
    ],
)
def test_what_a_declaration_leaves_out(schema, type_, wanting):
    assert told({"name": "f", "description": "d", "parameters": schema}, type_) == wanting


def test_the_library_tells_what_it_tells():
    schema = needs("who", **NESTED["properties"], **ENUM["properties"], any={"$ref": "#/x"})
    function = {"name": "f", "description": "d\nand more", "parameters": schema}
    library = parse_declarations(official_tools_text([{"function": function}]))["f"]
    assert told(function, library.type, library.comment) == []


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"enum": ["red"]}, "/enum"),
        ({"type": "array", "items": {"enum": ["red"]}}, "/items/enum"),
        ({"oneOf": [{"type": "string"}, {"enum": ["red"]}]}, "/oneOf/1/enum"),
    ],
)
def test_a_lost_value_is_located_where_the_request_has_it(schema, place):
    assert place_of_enum(schema, "red") == place


def test_a_member_of_a_nested_object_is_named_with_its_parameter():
    function = {"name": "book", "parameters": of(passenger=of(name=STRING), unit=STRING)}
    shown, library = (
        parse_declarations(official_tools_text([{"type": "function", "function": {**function, "parameters": schema}}]))
        for schema in ({"type": "object", "properties": {"passenger": {"type": "object"}}}, function["parameters"])
    )
    found = find_missing_descriptions(function, shown["book"], library["book"], "/tools/0/function")
    assert [str(one.message) for one in found] == [
        "the member name of the parameter passenger of book is not declared in the prompt",
        "the parameter unit of book is not declared in the prompt",
    ]
