"""The JSON of calls in each spelling, written out."""

import pytest

from harmony_ref.styles import JsonForm
from harmony_ref.styles.json_form import respell_json

SPELLINGS = {
    "spacing": ('{ "a" :1 ,"b": [1,2]}', '{"a": 1, "b": [1, 2]}', '{"a":1,"b":[1,2]}'),
    "order": ('{"b":1,"a":{"d":1,"c":2}}', '{"b": 1, "a": {"d": 1, "c": 2}}', '{"a":{"c":2,"d":1},"b":1}'),
    "escapes": ('{"a":"\\u00e9\\/<\\n"}', '{"a": "é/<\\n"}', '{"a":"é/\\u003c\\n"}'),
    "line separators": ('{"a":"\\u2028&>"}', '{"a": "\u2028&>"}', '{"a":"\\u2028\\u0026\\u003e"}'),
    "numbers": ('{"a":1.50,"b":1e2,"c":-3}', '{"a": 1.5, "b": 100.0, "c": -3}', '{"a":1.5,"b":100,"c":-3}'),
    "great numbers": ('{"a":1e21,"b":1e20}', '{"a": 1e+21, "b": 1e+20}', '{"a":1e+21,"b":100000000000000000000}'),
    "small numbers": ('{"a":1e-7,"b":0.000001}', '{"a": 1e-07, "b": 1e-06}', '{"a":1e-7,"b":0.000001}'),
    "literals": ('{"a":[true,false,null]}', '{"a": [true, false, null]}', '{"a":[true,false,null]}'),
    "nothing": ("{}", "{}", "{}"),
    "negative zero": ('{"a":-0.0}', '{"a": -0.0}', '{"a":-0}'),
    "digits that Go's numbers do not hold": ('{"a":9007199254740993}', '{"a": 9007199254740993}', None),
    "digits that no double holds": ('{"a":0.10000000000000000001}', None, None),
    "beyond any double": ('{"a":1e999}', None, None),
    "an exponent that nothing holds": ('{"a":1e99999999999999999999}', None, None),
    "a key twice": ('{"a":1,"a":2}', None, None),
    "an array": ("[1,2]", None, None),
    "a string": ('"a"', None, None),
    "no JSON": ("{a:1}", None, None),
    "more than JSON": ("{} {}", None, None),
    "not a number": ('{"a":NaN}', None, None),
    "negative zero without a fraction": ('{"a":-0}', None, '{"a":-0}'),
    "half a character as it is": ('{"a":"\ud800"}', None, None),
    "half a character in a key": ('{"\\ud800":1}', None, None),
    "half a character": ('{"a":"\\ud800"}', None, None),
    "deeper than can be read": ('{"a":' * 100_000, None, None),
    "no text": ("", None, None),
}


@pytest.mark.parametrize(("given", "python", "go"), SPELLINGS.values(), ids=SPELLINGS)
def test_json_is_respelled_only_where_nothing_is_lost(given, python, go):
    assert respell_json(given, JsonForm.AS_GIVEN) == given
    assert respell_json(given, JsonForm.PYTHON) == (given if python is None else python)
    assert respell_json(given, JsonForm.GO) == (given if go is None else go)
