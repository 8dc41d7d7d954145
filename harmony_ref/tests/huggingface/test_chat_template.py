import datetime as dt
import subprocess
import sys
from enum import StrEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("jinja2", reason="the extra huggingface is not installed")

from harmony_ref.errors import HarmonyError
from harmony_ref.extras import install_command
from harmony_ref.huggingface.chat_template import (
    ChatTemplateError,
    ChatTemplateFailedError,
    ChatTemplateInputError,
    ChatTemplateRaisedError,
    ChatTemplateSecurityError,
    ChatTemplateSyntaxError,
    ChatTemplateUndefinedError,
    render_chat_template,
)

HELLO = [{"role": "user", "content": "Hello"}]


def test_a_template_gets_messages_and_gives_a_text():
    rendered = render_chat_template("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", HELLO)
    assert rendered.text == "<user>Hello"
    assert rendered.generation_spans == ()


def test_generation_spans_are_those_of_the_text():
    template = (
        "{{ messages[0].content }} {% generation %}Hi!{% endgeneration %} {% generation %}Bye!{% endgeneration %}"
    )
    rendered = render_chat_template(template, HELLO)
    assert [rendered.text[start:end] for start, end in rendered.generation_spans] == ["Hi!", "Bye!"]


@pytest.mark.parametrize("now", [dt.date(2025, 6, 28), dt.datetime(2025, 6, 28, 9, 5, tzinfo=dt.UTC)])
def test_the_date_is_an_argument(now):
    assert render_chat_template("{{ strftime_now('%d %b %Y') }}", HELLO, now=now).text == "28 Jun 2025"


def test_one_rendering_leaves_nothing_behind_for_the_next():
    template = "{{ strftime_now('%Y') }}{% generation %}a{% endgeneration %}"
    first, second = (render_chat_template(template, HELLO, now=dt.date(year, 1, 1)) for year in (2024, 2025))
    assert (first.text, second.text) == ("2024a", "2025a")
    assert first.generation_spans == second.generation_spans == ((4, 5),)


def test_the_caller_s_values_are_not_changed():
    messages = [{"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning": "r", "name": None}]
    before = repr(messages)
    render_chat_template("{{ messages[0].content[0].text }}", messages, continue_final_message=True)
    assert repr(messages) == before


def test_a_subclass_of_text_reaches_the_template_as_a_text():
    class Role(StrEnum):
        USER = "user"

    rendered = render_chat_template("{{ messages[0].role.name is defined }}", [{"role": Role.USER}])
    assert rendered.text == "False"


ERRORS = [
    ("a syntax error has its line", "one\n{% if %}", ChatTemplateSyntaxError, 2, "Expected an expression"),
    ("an unknown tag has its line", "\n\n{% nosuch %}", ChatTemplateSyntaxError, 3, "nosuch"),
    ("a part of nothing has its line", "a\n{{ b.c }}", ChatTemplateUndefinedError, 2, "'b' is undefined"),
    ("the template's own refusal", "{{ raise_exception('no ' + 'way') }}", ChatTemplateRaisedError, 1, "no way"),
    (
        "a refusal inside a macro",
        "{% macro m() %}\n{{ raise_exception('x') }}{% endmacro %}\n\n{{ m() }}",
        ChatTemplateRaisedError,
        2,
        "x",
    ),
    ("a changed list", "{{ messages.clear() }}", ChatTemplateSecurityError, 1, "clear"),
    ("a changed object", "{{ messages[0].update(a=1) }}", ChatTemplateSecurityError, 1, "update"),
    ("the code of a function", "{{ raise_exception.__globals__.x }}", ChatTemplateSecurityError, 1, "__globals__"),
    (
        "the frames of a generator",
        "{% set g = messages | map('upper') %}{{ g.gi_frame.f_back }}",
        ChatTemplateSecurityError,
        1,
        "gi_frame",
    ),
    ("a hidden name in a namespace", "{% set n = namespace(_a=1) %}", ChatTemplateSecurityError, 1, "_a"),
    ("a division by zero", "\n{{ 1 / 0 }}", ChatTemplateFailedError, 2, "ZeroDivisionError"),
    (
        "endless recursion",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        ChatTemplateFailedError,
        1,
        "RecursionError",
    ),
    ("another file", "{% extends 'x' %}", ChatTemplateFailedError, 1, "TypeError"),
]


@pytest.mark.parametrize(
    ("template", "kind", "line", "said"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
def test_what_a_template_does_wrong_is_reported_with_its_line(template, kind, line, said):
    with pytest.raises(ChatTemplateError, match=f"^line {line}: ") as caught:
        render_chat_template(template, HELLO)
    assert type(caught.value) is kind
    assert caught.value.line == line
    assert said in str(caught.value)
    assert isinstance(caught.value, HarmonyError)


def test_an_error_has_its_parts():
    with pytest.raises(ChatTemplateSyntaxError) as syntax:
        render_chat_template("{{ 1 | nosuch }}", HELLO)
    assert syntax.value.problem == "No filter named 'nosuch'."
    with pytest.raises(ChatTemplateRaisedError) as raised:
        render_chat_template("{{ raise_exception('why') }}", HELLO)
    assert raised.value.message == "why"
    with pytest.raises(ChatTemplateFailedError) as failed:
        render_chat_template("{{ 1 + 'a' }}", HELLO)
    assert failed.value.exception == "TypeError"


READS_CONTENT = "{{ messages[-1].content }}"
INPUTS = [
    ("no message", {"messages": []}, "/messages"),
    ("a message that is a text", {"messages": ["Hello"]}, "/messages/0"),
    ("a value that is not JSON", {"messages": [{"role": "user", "a/b": [object()]}]}, "/messages/0/a~1b/0"),
    ("a member named by a number", {"messages": [{"role": "user", "x": {1: 2}}]}, "/messages/0/x"),
    ("a tool that is a text", {"tools": ["f"]}, "/tools/0"),
    ("a document that is a text", {"documents": [{}, "text"]}, "/documents/1"),
    ("a variable with the name of an argument", {"variables": {"messages": []}}, "/variables/messages"),
    ("a special token with the name of an argument", {"special_tokens": {"tools": "t"}}, "/special_tokens/tools"),
    ("a date that was not given", {"template": "{{ strftime_now('%Y') }}"}, "/now"),
    ("both ends", {"continue_final_message": True, "add_generation_prompt": True}, "/continue_final_message"),
    ("nothing to continue", {"messages": [{"role": "user"}], "continue_final_message": True}, "/messages/-1/content"),
    ("a member that is not there", {"continue_final_message": "thinking"}, "/messages/-1/thinking"),
    ("a number to continue", {"messages": [{"content": 1}], "continue_final_message": True}, "/messages/-1/content"),
    ("parts without text", {"messages": [{"content": [{}]}], "continue_final_message": True}, "/messages/-1/content"),
    ("a template that reads something else", {"template": "x", "continue_final_message": True}, "/messages/-1/content"),
    (
        "a template that changes the text",
        {"template": "{{ messages[-1].content | upper }}", "continue_final_message": True},
        "/messages/-1",
    ),
]


@pytest.mark.parametrize(("given", "pointer"), [row[1:] for row in INPUTS], ids=[row[0] for row in INPUTS])
def test_input_that_no_template_is_given_is_refused_with_its_place(given, pointer):
    arguments = {"template": READS_CONTENT, "messages": HELLO, **given}
    with pytest.raises(ChatTemplateInputError) as caught:
        render_chat_template(**arguments)
    assert caught.value.pointer == pointer
    assert caught.value.expected
    assert caught.value.line is None


def test_a_value_of_very_many_levels_is_refused():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ChatTemplateInputError, match="too many levels"):
        render_chat_template(READS_CONTENT, [{"role": "user", "content": nested}])


PIECES = st.sampled_from(
    ["{{", "}}", "{%", "%}", "{#", "#}", "-", " ", "\n", "if", "for", "m", "in", "messages", "endfor", "endif", "set", "=", "macro", "endmacro", "generation",
     "endgeneration", "break", "raise_exception(", ")", "(", "[", "]", ".", "|", "tojson", "'", "1", "1e999", "namespace", "strftime_now('%')",
     "é", "\ud800", "\x00",
     "import", "include", "block", "extends", "call", "raw", "endraw", "self", "loop", "caller()", "varargs", "lipsum"]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(template=st.lists(PIECES, max_size=14).map("".join))
def test_whatever_a_template_is_its_errors_are_ours(template):
    try:
        rendered = render_chat_template(template, HELLO)
    except ChatTemplateError:
        return
    assert isinstance(rendered.text, str)


WITHOUT = """
import sys
sys.modules["jinja2"] = sys.modules["jmespath"] = None
import harmony_ref
assert "harmony_ref.huggingface.chat_template" not in sys.modules and "harmony_ref.huggingface.response_schema" not in sys.modules
for name in ("chat_template", "response_schema"):
    try:
        __import__("harmony_ref.huggingface." + name)
    except ImportError as error:
        print(error)
"""


def test_a_missing_extra_is_one_clear_error_and_only_for_who_asks():
    answer = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    first, second = answer.stdout.splitlines()
    assert first == f"chat templates need jinja2, which is not installed: {install_command('huggingface')}"
    assert second == f"response schemas need jmespath, which is not installed: {install_command('huggingface')}"
