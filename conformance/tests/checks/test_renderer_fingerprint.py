"""Which renderer made the prompts of a run: by ids, by counts, unknown."""

import json
from dataclasses import replace
from itertools import chain

import pytest

from harmony_conformance.checks.helpers.counted_requests import BASE_STEP, REPEATED_BASE_STEP
from harmony_conformance.checks.rendering.renderer_fingerprint import fingerprint
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import PromptLevel
from harmony_conformance.golden import data as golden
from harmony_conformance.prompts.conversation import conversation_of
from harmony_conformance.prompts.token_accounting import FORMS
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref.styles import STYLES
from harmony_ref.styles.styled_rendering import rendered_messages

STEPS = {
    step["as"]: step["request"]
    for step in json.loads((golden.root() / "scenarios" / "prompt_accounting.json").read_text("utf-8"))["steps"]
}
BEGUN = [200006, 173781]


def prompt(body, style, date="2026-01-31"):
    messages = conversation_of(body, FORMS[0].options, date=date)
    return [*chain.from_iterable(one.ids for one in rendered_messages(messages, STYLES[style])), *BEGUN]


def exchange(name, body, *, ids=None, count=None):
    usage = {"prompt_tokens": len(ids) if count is None else count, "completion_tokens": 1, "total_tokens": 1}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    shown = {} if ids is None else {"prompt_token_ids": ids}
    data = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage, **shown}).encode()
    return Exchange(
        id=name,
        request=Request(path="/v1/chat/completions", body=json.dumps(body).encode()),
        response=Response(
            status=200, headers={"content-type": "application/json"}, chunks=(Chunk(arrival_time=0.0, data=data),)
        ),
    )


def by_ids(style, **kwargs):
    exchanges = {name: exchange(name, body, ids=prompt(body, style, **kwargs)) for name, body in STEPS.items()}
    return fingerprint([Series(name="prompt_accounting", exchanges=exchanges)])


def by_counts(style, preamble):
    counted = {name: len(prompt(body, style)) + preamble for name, body in STEPS.items()}
    exchanges = {name: exchange(name, body, count=counted[name]) for name, body in STEPS.items()}
    return fingerprint([Series(name="prompt_accounting", exchanges=exchanges)])


@pytest.mark.parametrize("style", ["harmony_0_0_8", "oss_harmony_0_0_11", "guide", "hf_template", "ollama"])
def test_ids_tell_the_style(style):
    found = by_ids(style)
    assert found.evidence is PromptLevel.IDS
    assert style in found.forms
    assert found.matching_prompts == found.prompts
    others = {"hf_template", "ollama", "harmony_0_0_8"} - {style}
    assert not others & set(found.forms)


def test_the_lines_of_the_system_message_are_reported():
    assert dict(by_ids("harmony_0_0_8").lines) == {
        "date": ("2026-01-31",),
        "cutoff": ("2024-06",),
        "effort": ("medium",),
        "identity": ("You are ChatGPT, a large language model trained by OpenAI.",),
    }


@pytest.mark.parametrize(("style", "preamble"), [("harmony_0_0_8", 0), ("hf_template", 37), ("ollama", -9)])
def test_counts_tell_the_form_and_what_stands_before_each_prompt(style, preamble):
    found = by_counts(style, preamble)
    assert (found.evidence, found.preamble) == (PromptLevel.ACCOUNTING, preamble)
    assert style in found.forms
    assert found.matching_prompts == found.prompts == len(STEPS) - 1


def test_a_form_that_nobody_knows_is_unknown():
    exchanges = {name: exchange(name, body, ids=[220, *prompt(body, "harmony_0_0_8")]) for name, body in STEPS.items()}
    found = fingerprint([Series(name="s", exchanges=exchanges)])
    assert (found.forms, found.matching_prompts) == ((), 0)
    assert found.to_json()["forms"] == ["unknown"]


def test_where_two_forms_are_mixed_the_one_that_fits_most_prompts_is_reported():
    exchanges = {name: exchange(name, body, ids=prompt(body, "harmony_0_0_8")) for name, body in STEPS.items()}
    name = "open loop"
    exchanges[name] = replace(exchange(name, STEPS[name], ids=prompt(STEPS[name], "guide")))
    found = fingerprint([Series(name="s", exchanges=exchanges)])
    assert "harmony_0_0_8" in found.forms
    assert found.matching_prompts == found.prompts - 1


def test_without_ids_and_counts_nothing_is_known():
    plain = exchange(BASE_STEP, STEPS[BASE_STEP], count=0)
    assert fingerprint([Series(name="s", exchanges={BASE_STEP: plain, REPEATED_BASE_STEP: plain})]) is None
