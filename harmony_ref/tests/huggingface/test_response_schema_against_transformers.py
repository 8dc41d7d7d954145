"""Random schemas and responses: the value and the kind of error are those of transformers 5.14.1.

HARMONY_TRANSFORMERS_PYTHON names the interpreter of an environment that has it, with jmespath.
"""

import json
import runpy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("jinja2", reason="the extra huggingface is not installed")
pytest.importorskip("jmespath", reason="the extra huggingface is not installed")

from harmony_ref.huggingface.golden_answers import response_schema_answer

ORACLE = runpy.run_path(str(Path(__file__).with_name("transformers_oracle.py")))


@pytest.fixture(scope="module")
def transformers():
    python = ORACLE["schema_python"]()
    if python is None:
        pytest.skip(f"{ORACLE['SCHEMA_PYTHON']} names no environment with transformers 5.14.1")
    worker = ORACLE["Worker"](python)
    yield worker
    worker.close()


PATTERNS = st.sampled_from(
    [
        "(.*)", "(.+?)$", r"<a>(.*?)</a>", r"(\d+)", r"^(\w+)", "a", "(a)(b)", "(", "a|(b)", r"(?P<a>\w)(?P<b>\w)?", "(?P<a>.*)",
        r"(?P<key>\w+)=(?P<value>\w*)", r"(?P<key>\w)|(?P<value>=)", r"(\{.*\})", r"(\[.*\])", "(?i)(A)", "()", None, 1,
    ]
)  # fmt: skip
REPLACEMENTS = st.sampled_from(["", "x", r"\1", r"\g<0>", r"\g<a>", "\\", r"\q"])
SUBSTITUTIONS = st.one_of(
    st.lists(st.tuples(PATTERNS.filter(lambda p: isinstance(p, str)), REPLACEMENTS).map(list), max_size=2),
    st.just([["a"]]),
)
TRANSFORMS = st.sampled_from(
    [
        "@",
        "a",
        "a.b",
        "[*].a",
        "{a: @}",
        "length(@)",
        "keys(@)",
        "to_number(@)",
        "[0]",
        "{a:",
        "",
        "nosuch(@)",
        "`null`",
        None,
        1,
    ]
)
ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"transform": TRANSFORMS, "allow_non_json": st.sampled_from([True, False, None])}
)
KINDS = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "any", None, "null", ["string"]])
VALUES = st.sampled_from([None, 0, "x", [1], {"a": "b"}])
NAMES = st.sampled_from(["a", "b", "key", "role"])


def nodes(inner):
    rules = st.one_of(inner, st.sampled_from([True, False, None, "x", {}]))
    return st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS,
            "x-regex": PATTERNS,
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "items": inner,
            "additionalProperties": rules,
            "required": st.lists(NAMES, max_size=1),
            "x-parser": st.sampled_from(["json", "json", "gemma4-tool-call", "xml"]),
            "x-parser-args": ARGUMENTS,
            "default": VALUES,
        },
    ) | st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("array"), "x-regex-iterator": PATTERNS, "items": inner}, optional={"x-regex": PATTERNS}
        ),
        st.fixed_dictionaries(
            {"type": st.just("object"), "x-regex-key-value": PATTERNS},
            optional={
                "additionalProperties": rules,
                "x-regex": PATTERNS,
                "properties": st.dictionaries(NAMES, inner, max_size=2),
            },
        ),
        st.fixed_dictionaries(
            {"type": st.just("array"), "prefixItems": st.lists(inner, max_size=2)},
            optional={"x-parser": st.just("json"), "x-regex-iterator": PATTERNS},
        ),
        st.fixed_dictionaries(
            {"type": KINDS, "x-regex-substitutions": SUBSTITUTIONS},
            optional={"x-regex": PATTERNS, "x-parser": st.just("json")},
        ),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, min_size=1, max_size=3)},
            optional={"x-parser": st.just("json"), "required": st.lists(NAMES, max_size=1)},
        ),
        st.fixed_dictionaries({"const": VALUES}),
        st.fixed_dictionaries({"type": KINDS, "x-regex-iterator": PATTERNS, "x-regex-key-value": PATTERNS}),
    )


LEAVES = st.fixed_dictionaries({}, optional={"type": KINDS, "x-regex": PATTERNS, "default": VALUES})
SCHEMAS = st.recursive(LEAVES, nodes, max_leaves=6)

JSONS = st.recursive(
    st.sampled_from([None, True, 0, 1, -2.5, 1e16, "", "a", "12", "true"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "<a>",
        "</a>",
        "12",
        " ",
        "\n",
        "a=1",
        "key=b",
        "{",
        "}",
        "[",
        "]",
        "true",
        "False",
        "nan",
        "1_0",
        "٣",
        "é🙂",
        '{a:<|"|>b<|"|>}',
    ]
)
RESPONSES = JSONS.map(json.dumps) | st.lists(st.one_of(ATOMS, JSONS.map(json.dumps)), max_size=5).map("".join)


@settings(
    max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(schema=SCHEMAS, response=RESPONSES)
def test_a_random_schema_reads_the_same(transformers, schema, response):
    asked = {"schema": schema, "response": response}
    assert json.dumps(response_schema_answer(asked, {})) == json.dumps(transformers.answer("response_schema", asked))


def test_the_oracle_is_the_last_that_knows_response_schemas(transformers):
    assert transformers.version == "5.14.1"
