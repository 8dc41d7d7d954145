"""Findings on prompt counts: one for each request that differs, and one for reasoning that no name brings to the model."""

import json

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge
from harmony_conformance.prompts import token_accounting
from harmony_conformance.prompts.known_mistakes import reference_conversation
from harmony_conformance.prompts.token_accounting import FORMS, count_in_form
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import decode, encode_with_special_tokens
from harmony_ref.styles.styled_rendering import rendered_messages

EXAMPLES = {example.id: example for example in golden.examples()}
RULES = {rule.id: rule for rule in CHECKS}


def findings(name: str):
    example = EXAMPLES[name]
    (result,) = judge([example.series], [RULES[example.check]])
    return result.findings


def test_each_request_whose_count_differs_is_a_finding_of_its_own():
    found = findings("accounting.counts_fit_a_form/fail-nothing-fits")
    steps = [one.exchange for one in found]
    assert len(steps) == len(set(steps)) > 1
    assert len({one.message for one in found}) == 1
    assert all(str(one.actual).isdigit() for one in found)


def test_reasoning_that_is_never_read_is_one_failure_that_names_what_was_sent():
    (one,) = findings("multi_turn.reasoning_is_read_under_its_own_name/fail-under-no-name")
    assert one.message.startswith("reasoning that is sent back is not read; it was sent as: ")


# over Responses, smg 1.13.0 renders this form, with these differences in tokens; the forms with `commentary` in every prompt are equally near
FORM = "harmony_0_0_8, calls without content type, commentary only with functions"
DIFFERENCES = {
    "developer instructions": -3,
    "later instructions": -5,
    "finished turn": 16,
    "open loop": -5,
    "result in JSON": -2,
}


def counted(step, body, count, ids=None):
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}
    if ids is not None:
        answer["prompt_token_ids"] = ids
    data = json.dumps({**answer, "usage": {"prompt_tokens": count, "completion_tokens": 1}}).encode()
    response = Response(status=200, headers={}, chunks=(Chunk(arrival_time=0.0, data=data),))
    return Exchange(id=step, step=step, request=Request(path="/", body=json.dumps(body).encode()), response=response)


def requests():
    scenario = json.loads((golden.root() / "scenarios" / "prompt_accounting.json").read_text("utf-8"))
    return {step["as"]: step["request"] for step in scenario["steps"]}


def test_counts_of_the_official_library_are_compared_with_no_other_form(monkeypatch):
    exchanges = {
        step: counted(step, body, count_in_form(json.dumps(body).encode(), FORMS[0]))
        for step, body in requests().items()
    }

    def refuse(requests):
        raise AssertionError

    monkeypatch.setattr(token_accounting, "cost_tables", refuse)
    rules = [RULES["accounting.counts_show_no_known_mistake"], RULES["accounting.counts_fit_a_form"]]
    results = judge([Series(name="prompt_accounting", exchanges=exchanges)], rules)
    assert [result.outcome for result in results] == [Outcome.PASS, Outcome.PASS]


def test_a_count_that_fits_one_of_the_nearest_forms_is_no_finding():
    bodies = requests()
    form = next(one for one in FORMS if str(one) == FORM)
    exchanges = {
        step: counted(step, body, count_in_form(json.dumps(body).encode(), form) + DIFFERENCES.get(step, 0))
        for step, body in bodies.items()
    }
    (result,) = judge([Series(name="prompt_accounting", exchanges=exchanges)], [RULES["accounting.counts_fit_a_form"]])
    wrong = {one.exchange for one in result.findings}
    assert wrong == {"developer instructions", "later instructions", "finished turn", "open loop"}


def reformatted_prompt(body):
    """The prompt of a request in the library's form, with the arguments of calls written anew."""
    form = next(one for one in FORMS if str(one) == "harmony_0_0_8, arguments reformatted")
    messages = reference_conversation(body, form.options)
    return [token for one in rendered_messages(messages, form.style) for token in one.ids] + encode_with_special_tokens(
        "<|start|>assistant"
    )


@pytest.mark.parametrize("are_shown", [True, False])
def test_shown_prompts_decide_which_count_is_wrong(are_shown):
    prompts = {step: reformatted_prompt(body) for step, body in requests().items()}
    # the preamble of the call is an answer, which is a token less: by chance as many as with the arguments as they were sent
    wrong = decode(prompts["open loop"]).replace("commentary<|message|>I will look.", "final<|message|>I will look.")
    prompts["open loop"] = encode_with_special_tokens(wrong)
    exchanges = {
        step: counted(step, body, len(prompts[step]), prompts[step] if are_shown else None)
        for step, body in requests().items()
    }
    (result,) = judge([Series(name="prompt_accounting", exchanges=exchanges)], [RULES["accounting.counts_fit_a_form"]])
    count = len(prompts["open loop"])
    found = [(one.exchange, str(one.expected), str(one.actual)) for one in result.findings]
    if are_shown:
        expected = f"in the nearest accepted form, harmony_0_0_8: {count + 1}"
        assert found == [("open loop", expected, str(count))]
    else:
        assert [step for step, *_ in found] == ["result in JSON"]


HF_FORM = next(form for form in FORMS if str(form) == "hf_template")


def test_the_form_named_after_the_published_template_says_that_it_has_raw_results():
    prompts = {step: count_in_form(json.dumps(body).encode(), HF_FORM) for step, body in requests().items()}
    prompts["result in JSON"] += 6
    exchanges = {step: counted(step, body, prompts[step]) for step, body in requests().items()}
    (result,) = judge([Series(name="prompt_accounting", exchanges=exchanges)], [RULES["accounting.counts_fit_a_form"]])
    (found,) = result.findings
    assert str(found.expected).startswith("in the nearest accepted form, hf_template, results raw")
