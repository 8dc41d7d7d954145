"""A violation is told only where it is certain."""

import pytest

from harmony_conformance.checks.helpers.json_schema import first_violation, is_schema

WORD = {"type": "object", "properties": {"word": {"enum": ["zqxv"]}}, "required": ["word"]}


@pytest.mark.parametrize(
    ("value", "schema", "where"),
    [
        pytest.param({"word": "zqxv"}, WORD, None, id="what it describes"),
        pytest.param({"word": "teal"}, WORD, "/word", id="another word"),
        pytest.param({}, WORD, "", id="nothing at all"),
        pytest.param(1.0, {"type": "integer"}, None, id="1.0 is whole"),
        pytest.param("tomorrow", {"format": "date"}, None, id="a format is an annotation"),
        pytest.param("b", {"pattern": "^a$"}, "", id="a plain pattern"),
        pytest.param("a" * 40 + "b", {"pattern": "^(a+)+$"}, None, id="a pattern that could take for ever"),
        pytest.param({"a": 1}, {"patternProperties": {"^(a+)+$": False}}, None, id="patterns of names"),
        pytest.param({"pattern": 1}, {"properties": {"pattern": {"type": "string"}}}, "/pattern", id="so named"),
        pytest.param(1, {"$ref": "https://example.com/a.json"}, None, id="another document is not fetched"),
        pytest.param(1, {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "", id="within the document"),
        pytest.param(1, {"$ref": "#"}, None, id="a reference to itself"),
        pytest.param(1, {"type": "strnig"}, None, id="no schema"),
        pytest.param(1, "string", None, id="not even an object"),
        pytest.param(1, {"pattern": "("}, None, id="a pattern that is none"),
    ],
)
def test_the_first_violation_is_found_where_it_is_certain(value, schema, where):
    found = first_violation(value, schema)
    assert (found and found[0]) == where


@pytest.mark.parametrize(("value", "expected"), [({}, True), (WORD, True), ({"type": "strnig"}, False), ([], False)])
def test_a_schema_is_distinguished_from_what_is_none(value, expected):
    assert is_schema(value) is expected


def test_an_odd_pattern_of_a_client_prints_no_warning(recwarn):
    assert is_schema({"type": "string", "pattern": "[[a]"})
    assert not recwarn.list
