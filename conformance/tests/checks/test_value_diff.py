import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.checks.helpers.value_diff import (
    ValueDifference,
    argument_difference,
    first_difference,
    json_differences,
    text_difference,
)


@pytest.mark.parametrize(
    ("expected", "actual", "index"),
    [
        pytest.param("same", "same", None, id="equal"),
        pytest.param("abc", "abd", 2, id="another character"),
        pytest.param("abc", "ab", 2, id="the end is missing"),
        pytest.param("ab", "abc", 2, id="something behind"),
        pytest.param("", "x", 0, id="nothing expected"),
    ],
)
def test_the_first_difference_of_texts(expected, actual, index):
    assert first_difference(expected, actual) == index


@given(st.text(), st.text())
def test_what_precedes_the_first_difference_is_equal(one, other):
    index = first_difference(one, other)
    assert (index is None) == (one == other)
    assert one[: index or 0] == other[: index or 0]
    assert index is None or one[index : index + 1] != other[index : index + 1]


@pytest.mark.parametrize(
    ("expected", "actual", "excerpts"),
    [
        pytest.param("Hello", "Hallo", ("Hello", "Hallo"), id="short texts are whole"),
        pytest.param("a\nb", "a\tb", ("a\\nb", "a\\tb"), id="control characters are escaped"),
        pytest.param(
            "x" * 50 + "A", "x" * 50 + "B", ("…" + "x" * 30 + "A", "…" + "x" * 30 + "B"), id="around the place"
        ),
        pytest.param(
            "A" + "x" * 50, "B" + "x" * 50, ("A" + "x" * 29 + "…", "B" + "x" * 29 + "…"), id="what follows is cut"
        ),
    ],
)
def test_excerpts_show_the_place(expected, actual, excerpts):
    assert text_difference(expected, actual) == excerpts


@pytest.mark.parametrize(
    ("expected", "actual", "found"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="equal"),
        pytest.param({"a": 1}, {"a": 2}, [("a", "1", "2")], id="another value"),
        pytest.param({"a": 1}, {"a": "1"}, [("a", "1", '"1"')], id="another type"),
        pytest.param({"a": 1}, {}, [("a", "1", "nothing")], id="a member is missing"),
        pytest.param({}, {"a": None}, [("a", "nothing", "null")], id="a member more"),
        pytest.param([1, 2], [1], [("[1]", "2", "nothing")], id="an item is missing"),
        pytest.param(
            {"a": [{"b": "Hello"}]}, {"a": [{"b": "Hallo"}]}, [("a[0].b", "Hello", "Hallo")], id="a text, deep down"
        ),
        pytest.param(
            {"b": 1, "a": 1}, {"b": 2, "a": 2}, [("a", "1", "2"), ("b", "1", "2")], id="in the order of the paths"
        ),
    ],
)
def test_differences_of_json(expected, actual, found):
    assert [(one.path, one.expected, one.actual) for one in json_differences(expected, actual)] == found


def test_a_difference_is_a_sentence():
    said = str(ValueDifference(path="a.b", expected="1", actual="2"))
    assert said == "a.b is 2 where 1 was expected"


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        pytest.param('{"n":1e-400}', '{"n":0}', "the argument at n is 0 instead of 1e-400", id="beyond doubles"),
        pytest.param('{"n":1E22}', '{"n":"1E22"}', 'the argument at n is "1E22" instead of 1E22', id="another type"),
        pytest.param(
            '{"n":0.1}', '{"n":0.10000000000000000001}', "a number of the arguments has other digits", id="digits"
        ),
        pytest.param("", '{"n":1}', "the argument at n is 1 instead of nothing", id="empty arguments"),
        pytest.param("[1]", '{"n":1}', None, id="no object"),
    ],
)
def test_numbers_of_arguments_are_shown_as_they_are_written(expected, actual, words):
    assert argument_difference(expected, actual) == words
