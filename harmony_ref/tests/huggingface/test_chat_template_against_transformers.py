"""Random templates and conversations: the text, the spans and the errors are those of transformers."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("jinja2", reason="the extra huggingface is not installed")
pytest.importorskip("jmespath", reason="the extra huggingface is not installed")
pytest.importorskip("transformers")

from harmony_ref.huggingface.golden_answers import template_answer

ORACLE = runpy.run_path(str(Path(__file__).with_name("transformers_oracle.py")))
SLOW_IS_FINE = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def transformers():
    worker = ORACLE["Worker"](sys.executable)
    yield worker
    worker.close()


def without_addresses(answer):
    """Python's own names of objects and places in memory, which a template can write, are each implementation's own."""
    text = re.sub(r"(?i)0x[0-9a-f]+", "0x", json.dumps(answer))
    return re.sub(
        r"(harmony_ref\.huggingface\.jinja_sandbox|transformers\.utils\.chat_template_utils)[\w.<>]*", "module", text
    )


def joined(*parts):
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


NAMES = st.sampled_from(
    [
        "messages",
        "m",
        "m.content",
        "m.role",
        "m.thinking",
        "tools",
        "documents",
        "bos_token",
        "x",
        "nothing",
        "n.v",
        "loop.index",
        "add_generation_prompt",
    ]
)
LITERALS = st.sampled_from(
    [
        "1",
        "-2",
        "0",
        "1.5",
        "'a'",
        "' b\\n'",
        "'é한🙂'",
        "''",
        "true",
        "none",
        "[]",
        "[1, 'a']",
        "{'k': 1, 'a': [none]}",
        "(1, 2)",
    ]
)
FILTERS = st.sampled_from(
    [
        "tojson",
        "tojson(indent=1)",
        "tojson(ensure_ascii=true)",
        "tojson(sort_keys=true)",
        "tojson(separators=(',', ':'))",
        "upper",
        "trim",
        "length",
        "list",
        "first",
        "last",
        "join('-')",
        "string",
        "default('d')",
        "int",
        "safe",
        "e",
        "items | list",
        "sort",
        "reverse | list",
        "selectattr('role') | list",
        "map(attribute='role') | list",
        "nosuch",
    ]
)
TESTS = st.sampled_from(["defined", "none", "string", "mapping", "iterable", "true", "odd", "sameas none"])


def grown(inner):
    return st.one_of(
        joined(
            "(",
            inner,
            " ",
            st.sampled_from(["+", "-", "*", "~", "==", "!=", "<", "in", "and", "or", "//", "%"]),
            " ",
            inner,
            ")",
        ),
        joined("(", inner, " | ", FILTERS, ")"),
        joined("(", inner, " is ", TESTS, ")"),
        joined("(", inner, " if ", inner, " else ", inner, ")"),
        joined(
            inner,
            st.sampled_from(
                [
                    ".role",
                    ".content",
                    "['content']",
                    "[0]",
                    "[-1]",
                    "[1:]",
                    ".items()",
                    ".append(1)",
                    ".__class__",
                    ".strip()",
                    ".split('a')",
                    ".format(1)",
                    "()",
                ]
            ),
        ),
        joined("namespace(", st.sampled_from(["v", "w", "_h"]), "=", inner, ")"),
        joined("dict(", st.sampled_from(["a", "b"]), "=", inner, ")"),
        joined("raise_exception(", inner, ")"),
        joined("range(", inner, ")"),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, LITERALS), grown, max_leaves=5)
TEXTS = st.sampled_from(["", "a", "<b>&\"'", "\n", "  ", " \n \n", "한🙂", "# ", "{ }", "<|end|>"])
MINUS = st.sampled_from(["", "-"])


def tag(body):
    return joined("{%", MINUS, " ", body, " ", MINUS, "%}")


def blocks(inner):
    return st.one_of(
        joined(inner, inner),
        joined(tag(joined("for m in ", EXPRESSIONS)), inner, tag("endfor")),
        joined(tag("for m in messages"), inner, tag("else"), inner, tag("endfor")),
        joined(tag("for m in messages"), inner, tag(st.sampled_from(["break", "continue"])), inner, tag("endfor")),
        joined(tag(joined("if ", EXPRESSIONS)), inner, tag("else"), inner, tag("endif")),
        joined(tag("generation"), inner, tag("endgeneration")),
        joined(tag("set x"), inner, tag("endset")),
        joined(tag(joined("macro f(m)")), inner, tag("endmacro"), "{{ f(", EXPRESSIONS, ") }}"),
        joined(tag("filter upper"), inner, tag("endfilter")),
        joined(tag("set n = namespace(v=0)"), inner, tag(joined("set n.v = ", EXPRESSIONS)), "{{ n.v }}"),
        joined(tag(joined("set x = ", EXPRESSIONS)), inner),
        joined(tag("autoescape true"), inner, tag("endautoescape")),
        joined(tag("generation"), inner),
    )


OUTPUT = joined("{{", MINUS, " ", EXPRESSIONS, " ", MINUS, "}}")
TEMPLATES = st.recursive(st.one_of(TEXTS, OUTPUT), blocks, max_leaves=8)

JSONS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, "", "a", " b ", "é\n<&>"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "text", "type"]), inner, max_size=2)
    ),
    max_leaves=4,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
    optional={
        name: st.one_of(st.sampled_from(["", "Hi", " two\nlines "]), JSONS)
        for name in ("content", "thinking", "reasoning_content", "reasoning", "tool_calls", "name")
    },
)
CONVERSATIONS = st.lists(MESSAGES, min_size=1, max_size=3)
OBJECTS = st.lists(st.dictionaries(st.sampled_from(["type", "function"]), JSONS, max_size=2), max_size=2)


@SLOW_IS_FINE
@given(
    template=TEMPLATES,
    messages=CONVERSATIONS,
    options=st.fixed_dictionaries(
        {},
        optional={
            "tools": OBJECTS,
            "documents": OBJECTS,
            "add_generation_prompt": st.booleans(),
            "special_tokens": st.fixed_dictionaries({"bos_token": st.just("<s>")}),
            "variables": st.fixed_dictionaries({"x": JSONS}),
        },
    ),
)
def test_a_random_template_says_the_same(transformers, template, messages, options):
    asked = {"template": template, "messages": messages, **options}
    assert without_addresses(template_answer(asked, {})) == without_addresses(transformers.answer("template", asked))


READERS = st.sampled_from(
    [
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
        "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}",
        "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content | tojson }}{% endfor %}",
        "{% for m in messages %}{{ m.thinking }}{{ m.thinking }}|{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}",
        "{{ messages[0].content }}",
        "{{ messages | length }}",
    ]
)
PARTS = st.lists(
    st.dictionaries(st.sampled_from(["type", "text"]), st.sampled_from(["text", "one", " two "]), max_size=2),
    max_size=3,
)
ENDINGS = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        name: st.one_of(st.sampled_from(["", "Once", " Once upon ", "Once\n"]), PARTS)
        for name in ("content", "thinking", "reasoning_content", "reasoning")
    },
)


@SLOW_IS_FINE
@given(
    template=READERS,
    messages=st.lists(ENDINGS, min_size=1, max_size=2),
    field=st.sampled_from([True, "content", "thinking", "reasoning_content", "reasoning", "name", ""]),
)
def test_a_continued_message_says_the_same(transformers, template, messages, field):
    asked = {"template": template, "messages": messages, "continue_final_message": field}
    assert template_answer(asked, {}) == transformers.answer("template", asked)


ANSWERS = """
{%- for m in messages %}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}
{%- endfor %}"""
MASKED = [
    ("two answers", ANSWERS),
    ("a captured block", "ab{% set t %}xyz{% generation %}cd{% endgeneration %}{% endset %}-{{ t }}-"),
    ("a block in a block", "ab{% generation %}cd{% generation %}ef{% endgeneration %}gh{% endgeneration %}ij"),
]


@pytest.mark.parametrize("template", [row[1] for row in MASKED], ids=[row[0] for row in MASKED])
def test_the_spans_are_the_mask_of_a_tokenizer_whose_tokens_are_characters(transformers, template):
    messages = [
        {"role": "user", "content": "한a"},
        {"role": "assistant", "content": "b🙂"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]
    asked = {"template": template, "messages": messages}
    answer = template_answer(asked, {})
    generated = {place for start, end in answer["generation_spans"] for place in range(start, end)}
    mask = [int(place in generated) for place in range(len(answer["text"]))]
    assert transformers.answer("mask", asked) == {"mask": mask}


def test_the_date_of_transformers_is_today(transformers):
    asked = {"template": "{{ strftime_now('%Y-%m-%d') }}", "messages": [{"role": "user"}]}
    answer = transformers.answer("strftime", asked)
    assert answer["text"] in answer["dates"]
    assert template_answer({**asked, "now": {"%Y-%m-%d": answer["text"]}}, {}) == {"text": answer["text"]}
