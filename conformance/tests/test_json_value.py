import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.apis.json_equality import equal_as_doubles, equal_json, has_added_fractions
from harmony_conformance.json_value import (
    MAX_DEPTH,
    MAX_LINE_DEPTH,
    DuplicateMemberError,
    InvalidJsonError,
    canonical_json,
    dumps,
    dumps_as_written,
    dumps_each,
    find_objects,
    integer,
    items,
    loads,
    loads_as_written,
    members,
    pointer,
    resolve,
    strings,
    text,
    value_at,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_written_is_read(value):
    assert loads(dumps(value)) == value
    assert loads(canonical_json(value)) == value


@given(st.lists(VALUES | st.sampled_from(["|~|", ["a", "|~|", "b"], {"a": ["|~|"]}]), max_size=6))
def test_values_are_written_together_as_one_by_one(values):
    assert dumps_each(values) == [*map(dumps, values)]


@pytest.mark.parametrize("wide", [0, 1, 300])
@pytest.mark.parametrize("deep", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1])
def test_wide_values_count_as_deep_as_their_deepest_part(wide, deep):
    document = f"[{'[{}],' * wide}{'[' * (deep - 1)}{']' * (deep - 1)}{',{}' * wide}]"
    if deep > MAX_DEPTH:
        with pytest.raises(InvalidJsonError, match="nested too deeply"):
            loads(document)
    else:
        assert loads(document) == json.loads(document)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param("{", "at the end of the text", id="cut"),
        pytest.param("", "at the end of the text", id="empty"),
        pytest.param("{'a': 1}", "at character 1: \"'a': 1}\"", id="another language"),
        pytest.param("[1] x", "at character 4: 'x'", id="something behind"),
        pytest.param('["ab', "Unterminated string starting at character 1: '\"ab'", id="an open string"),
        pytest.param('"a\tb"', "Invalid control character at character 2: ", id="a control character"),
        pytest.param('"\\x"', "Invalid \\escape at character 1: ", id="an unknown escape"),
        pytest.param("NaN", "NaN is not JSON", id="not a number"),
        pytest.param("[-Infinity]", "-Infinity is not JSON", id="infinity"),
        pytest.param("[" * 100_000, "nested too deeply", id="too deep"),
    ],
)
def test_what_is_no_json_is_reported_and_where(document, said):
    with pytest.raises(InvalidJsonError) as error:
        loads(document)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "document",
    ['{"a":1,"b":[true,null,-1.5e3,"x\\u00e9\\n \\\\ y"]}', '["a"]', "-12.5E+7", ' {"a" : {"b": [] } , "c":false}'],
)
def test_every_beginning_of_a_document_may_go_on(document):
    def wrong(beginning):
        try:
            loads(beginning)
        except InvalidJsonError as cut:
            return not cut.may_be_truncated
        return False

    assert [document[:end] for end in range(len(document)) if wrong(document[:end])] == []


@pytest.mark.parametrize("document", ["Teal.", "```json\n{", '{"a":1,}', "{a", '{"a":1} and', "nulla", "[,", '"a\tb'])
def test_what_is_wrong_already_may_not_go_on(document):
    with pytest.raises(InvalidJsonError) as wrong:
        loads(document)
    assert not wrong.value.may_be_truncated


@pytest.mark.parametrize("opens", ["[", '{"a":', '[{"a":'])
def test_a_document_is_read_as_deep_as_any_python_can_walk_it_and_no_deeper(opens):
    def nested(levels):
        times = levels // (2 if opens == '[{"a":' else 1)
        return (
            opens * times + "1" + "".join("]" if one == "[" else "}" for one in reversed(opens) if one in "[{") * times
        )

    deepest = nested(MAX_DEPTH)
    assert dumps(loads(deepest)) == deepest
    assert list(strings(loads(deepest.replace("1", '"x"')))) == ["x"]
    assert equal_json(deepest, f" {deepest}")
    deeper = f"[{deepest}]"
    assert loads(deeper, max_depth=MAX_LINE_DEPTH) == [loads(deepest)]
    for document in (deeper, f"{deeper} ", f'["{"[" * MAX_DEPTH}",{deepest}]', nested(MAX_DEPTH * 30)):
        with pytest.raises(InvalidJsonError, match="nested too deeply"):
            loads(document)
    assert not equal_json(deeper, deeper)
    assert loads(wide := f"[{'[1],' * 1000}{{}}]") == json.loads(wide)


def test_an_object_that_is_nested_too_deeply_is_not_found_in_a_text():
    deeper = '{"a":' * (MAX_DEPTH + 2) + "1" + "}" * (MAX_DEPTH + 2)
    assert len(list(find_objects(f"so: {deeper} and"))) == MAX_DEPTH
    assert list(find_objects('so: {"a": [{}]} and')) == [{"a": [{}]}, {}]


def test_an_object_with_more_digits_than_python_reads_is_passed_over():
    assert list(find_objects(f'{{"a": {"1" * 5000}}} {{"b": 2}}')) == [{"b": 2}]


def test_bytes_that_are_no_utf8_are_replaced():
    assert loads(b'"a\xffb"') == "a\ufffdb"


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_else(data):
    try:
        loads(data)
    except InvalidJsonError:
        return


TREE = {"a": [{"b": 1}, "x"], "": {"~/": True}, "n": None}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param((), TREE, id="the value itself"),
        pytest.param(("a", 0, "b"), 1, id="down"),
        pytest.param(("a", -1), "x", id="from the end"),
        pytest.param(("a", 2), None, id="no such index"),
        pytest.param(("a", -3), None, id="no such index from the end"),
        pytest.param(("z",), None, id="no such member"),
        pytest.param(("a", "b"), None, id="a name in a list"),
        pytest.param(("n", "x"), None, id="below null"),
        pytest.param((0,), None, id="an index in an object"),
    ],
)
def test_walking(path, expected):
    assert value_at(TREE, *path) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("x", ("x", None, [], {}), id="a text"),
        pytest.param(7, ("", 7, [], {}), id="a number"),
        pytest.param(True, ("", None, [], {}), id="a boolean is no number"),
        pytest.param(1.0, ("", None, [], {}), id="a fraction is no whole number"),
        pytest.param([1], ("", None, [1], {}), id="a list"),
        pytest.param({"a": 1}, ("", None, [], {"a": 1}), id="an object"),
        pytest.param(None, ("", None, [], {}), id="null"),
    ],
)
def test_narrowing(value, expected):
    assert (text(value), integer(value), items(value), members(value)) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param("", TREE, id="everything"),
        pytest.param("/a/0/b", 1, id="down"),
        pytest.param("//~0~1", True, id="escapes"),
        pytest.param("/n", None, id="null is there"),
    ],
)
def test_pointers_are_resolved(where, expected):
    assert resolve(TREE, where) == expected


@pytest.mark.parametrize("where", ["/z", "/a/2", "/a/x", "/a/0/b/c", "/n/x", "/a/-1", f"/a/{'9' * 5000}"])
def test_pointers_to_nothing_say_where_the_path_ends(where):
    with pytest.raises(LookupError, match="invalid JSON pointer"):
        resolve(TREE, where)


@given(st.lists(st.text(min_size=1) | st.integers(min_value=0, max_value=9), min_size=1))
def test_a_pointer_leads_where_its_path_leads(path):
    value = 7
    for step in reversed(path):
        value = {step: value} if isinstance(step, str) else [None] * step + [value]
    assert resolve(value, pointer(*path)) == 7
    assert value_at(value, *path) == 7


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param('{"a": 1}', '{"a":1}', True, id="blanks"),
        pytest.param('{"a":1,"b":2}', '{"b":2,"a":1}', True, id="order"),
        pytest.param('"\\u00fc"', '"ü"', True, id="escapes"),
        pytest.param("[1,2]", "[2,1]", False, id="a list has an order"),
        pytest.param('{"a":1}', '{"a":"1"}', False, id="another type"),
        pytest.param("[1, 1e2, -0]", "[1.0, 100, 0]", True, id="numbers are values, however they are spelled"),
        pytest.param("0.1", "0.10000000000000000001", False, id="to the last digit of a fraction"),
        pytest.param("9007199254740993", "9007199254740992.0", False, id="to the last digit of a whole number"),
        pytest.param("1e999999999999999999999", "1e999", False, id="beyond what a Decimal holds"),
        pytest.param("1", "true", False, id="true is no number"),
        pytest.param('{"a":1,"b":1}', '{"a":1}', False, id="a member more"),
        pytest.param("{", "{", False, id="no JSON"),
        pytest.param("", "", False, id="nothing"),
    ],
)
def test_equality_as_json(one, other, expected):
    assert equal_json(one, other) is expected


def test_every_text_of_a_value():
    assert list(strings({"a": ["x", 1, {"b": "y"}], "c": None, "d": "z"})) == ["x", "y", "z"]


def test_json_is_compact_and_keeps_its_characters():
    value = {"b": ["ü", 1.5], "a": None}
    assert (dumps(value), canonical_json(value)) == ('{"b":["ü",1.5],"a":null}', '{"a":null,"b":["ü",1.5]}')
    assert json.loads(dumps(value)) == value


@pytest.mark.parametrize(
    ("written", "shown", "expected"),
    [
        pytest.param('{"a":1}', '{"a": 1.0}', True, id="a whole number became a fraction"),
        pytest.param("[100]", "[1e2]", True, id="an exponent"),
        pytest.param('{"a":1,"a":2}', '{"a": 2}', False, id="of a key that stands there twice, the last"),
        pytest.param("[1.0]", "[1]", False, id="a fraction became whole, which every client reads"),
        pytest.param('{"a":1,"b":2}', '{"b":2,"a":1}', False, id="another order"),
        pytest.param('{"a":"1"}', '{"a":"1"}', False, id="a text is no number"),
        pytest.param("{", "1.0", False, id="no JSON"),
    ],
)
def test_a_whole_number_that_is_spelled_as_a_fraction(written, shown, expected):
    assert has_added_fractions(written, shown) is expected


@pytest.mark.parametrize("document", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "\\u0061": 2}}]', b' {"a": 1, "a": 2}\n'])
def test_duplicate_members_are_refused_on_request(document):
    assert loads(document)
    with pytest.raises(DuplicateMemberError):
        loads(document, allows_duplicates=False)


@pytest.mark.parametrize("document", ['{"a": {"a": 1}, "b": "a", "A": 1}', b'[{"a": 1}, {"a": 1}]\n', "1"])
def test_members_of_different_objects_or_names_are_no_duplicates(document):
    assert loads(document, allows_duplicates=False) == loads(document)


AS_WRITTEN = '{"a":[1e-400,5e-324,1E22,-0.0,1.50,12345678901234567890],"ü":{"t":true,"n":null}}'


def test_numbers_are_written_as_they_were():
    value = loads_as_written(AS_WRITTEN)
    assert dumps_as_written(value) == AS_WRITTEN
    assert dumps_as_written(pickle.loads(pickle.dumps(value))) == AS_WRITTEN
    assert value == loads(AS_WRITTEN)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_value_without_fractions_is_written_as_ever(value):
    assert dumps_as_written(value) == dumps(value)


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ('{"n":12345678901234567890}', '{"n":12345678901234567000}', True),
        ('{"n":123456789012345678901234567890}', '{"n":1.2345678901234568e+29}', True),
        ('{"n":1e-400}', '{"n":0}', True),
        ('{"n":1}', '{"n":2}', False),
        ('{"n":1}', '{"n":true}', False),
        ("1", "x", False),
    ],
)
def test_numbers_can_be_equal_as_doubles_only(one, other, are_equal):
    assert equal_as_doubles(one, other) is are_equal
