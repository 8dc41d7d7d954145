import sys

import pytest

from harmony_ref.huggingface import bounded
from harmony_ref.huggingface.bounded import (
    LARGEST_ERROR_TEXT,
    EvaluationLimitError,
    EvaluationLimits,
    parse_bounded,
    render_bounded,
)
from harmony_ref.huggingface.chat_template import ChatTemplateError, render_chat_template
from harmony_ref.huggingface.response_schema import ResponseSchemaError, parse_response

MESSAGES = [{"role": "user", "content": "Hi"}]
SHORT = EvaluationLimits(seconds=1)
LONG = EvaluationLimits(seconds=60)

ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "macros that call themselves": (
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"
    ),
    "a power": "{{ (9 ** (9 ** 9)) | string | length }}",
}
LARGE = {
    "a repeated text": "{{ ('x' * 10**10) | length }}",
    "a repeated list": "{{ ([0] * 10**10) | length }}",
    "a padded text": "{{ 'x'.ljust(10**10) | length }}",
    "a join": "{{ ('x' * 10**6) | join('x' * 10**6) | length }}",
}


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS)
def test_a_template_that_takes_too_long_is_stopped(template):
    with pytest.raises(EvaluationLimitError, match="expected an evaluation within 1 seconds") as caught:
        render_bounded(template, MESSAGES, limits=SHORT)
    assert caught.value.limit == "seconds"


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
@pytest.mark.parametrize("template", LARGE.values(), ids=LARGE)
def test_a_template_that_needs_too_much_memory_is_stopped(template):
    with pytest.raises((EvaluationLimitError, ChatTemplateError)) as caught:
        render_bounded(template, MESSAGES, limits=LONG)
    assert getattr(caught.value, "limit", None) == "memory"


def test_a_system_that_refuses_a_limit_of_memory_evaluates_without_one(monkeypatch):
    resource = pytest.importorskip("resource")

    def refuse(*_):
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    bounded._limit_memory(1 << 20)


def test_a_long_prompt_is_refused():
    with pytest.raises(EvaluationLimitError, match="within 1000 characters"):
        render_bounded("{{ 'x' * 1000 }}", MESSAGES, limits=EvaluationLimits(seconds=60, characters=1000))


ENDLESS_SCHEMAS = {
    "x-regex": {"type": "string", "x-regex": "((?:a+)+)$"},
    "x-regex-iterator": {"type": "array", "x-regex-iterator": "((?:a+)+)$", "items": {}},
    "x-regex-substitutions": {"type": "string", "x-regex-substitutions": [["(a+)+$", ""]]},
    "transform": {
        "x-regex-substitutions": [["^.*$", "[1]"]],
        "x-parser": "json",
        "x-parser-args": {"transform": " | ".join(["[@, @][]"] * 40)},
    },
}


@pytest.mark.parametrize("schema", ENDLESS_SCHEMAS.values(), ids=ENDLESS_SCHEMAS)
def test_a_schema_that_takes_too_long_is_stopped(schema):
    with pytest.raises(EvaluationLimitError) as caught:
        parse_bounded("a" * 60 + "b", schema, limits=SHORT)
    assert caught.value.limit in ("seconds", "memory")


def test_results_are_those_of_the_unbounded_functions():
    template = "{% for m in messages %}{% generation %}{{ m.content }}é{{ x }}{% endgeneration %}{% endfor %}"
    expected = render_chat_template(template, MESSAGES, variables={"x": 1})
    assert render_bounded(template, MESSAGES, variables={"x": 1}, limits=LONG) == expected
    schema = {"type": "object", "properties": {"a": {"type": "integer", "x-regex": "(\\d+)"}}}
    assert parse_bounded("x12", schema, limits=LONG) == parse_response("x12", schema) == {"a": 12}


@pytest.mark.parametrize(
    "template", ["{% if %}", "{{ raise_exception('no') }}", "{{ a.b.c }}", "{{ ''.__class__.x }}", "{{ 1 / 0 }}"]
)
def test_an_error_of_a_template_is_that_of_the_unbounded_function(template):
    with pytest.raises(ChatTemplateError) as expected:
        render_chat_template(template, MESSAGES)
    with pytest.raises(ChatTemplateError) as caught:
        render_bounded(template, MESSAGES, limits=LONG)
    assert (type(caught.value), str(caught.value), vars(caught.value)) == (
        type(expected.value),
        str(expected.value),
        vars(expected.value),
    )


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="no_option"):
        render_bounded("", MESSAGES, no_option=1, limits=LONG)


@pytest.mark.parametrize("schema", [{"x-regex": "("}, {"type": "integer"}, {"type": "no"}])
def test_an_error_of_a_schema_is_that_of_the_unbounded_function(schema):
    with pytest.raises(ResponseSchemaError) as expected:
        parse_response("x", schema)
    with pytest.raises(ResponseSchemaError) as caught:
        parse_bounded("x", schema, limits=LONG)
    assert (type(caught.value), str(caught.value), vars(caught.value)) == (
        type(expected.value),
        str(expected.value),
        vars(expected.value),
    )
    assert type(vars(caught.value)["problem"]) is bounded.SchemaProblem


def test_a_deep_schema_is_refused():
    schema = {"type": "string"}
    for _ in range(100_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(EvaluationLimitError, match="expected values of fewer levels") as caught:
        parse_bounded("x", schema, limits=LONG)
    assert caught.value.limit == "levels"


def test_the_text_of_an_error_is_cut():
    with pytest.raises(ChatTemplateError) as caught:
        render_bounded("{{ raise_exception('x' * 30000000) }}", MESSAGES, limits=LONG)
    assert len(str(caught.value)) == len(caught.value.message) == LARGEST_ERROR_TEXT
    assert str(caught.value).endswith("x…")
