"""Thoughts without any marker as the answer: the forms in which gpt-oss thinks, and prose that resembles them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harmony_conformance.evidence.leaks.unmarked_thought import begins_as_thought

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "thought",
    [
        "The user asks why the sky is blue. We need to answer briefly: Rayleigh scattering.",
        'User: "Name a river in three words." They want a short answer. Provide three words.',
        "We need to classify the message. The message: a reminder of a visit to the dentist. It's a statement.",
        "We have a question about tides. It is a simple question. So answer: twice a day.",
        "Need to greet them. Probably a short hello. No extra text.",
        "Let's compute 17 * 23. So the answer is 391.",
        "The question: which planet is the largest? Likely Jupiter. Ensure one word.",
        "Okay, the user wants a poem. No policy issue. Let's craft four lines.",
        "We must decide whether this is spam. According to policy, one reminder is fine.",
        "I should answer in French, since the user wrote in French.",
        "The user's message is a riddle. Presumably they expect a pun; we'll answer with one.",
    ],
)
def test_a_thought_is_recognized_by_its_first_words_and_a_second_sign(thought):
    assert begins_as_thought(thought)


@pytest.mark.parametrize(
    "answer",
    [
        "The user says the export fails. The user asked twice. Please restart the worker.",
        "The user wants to reset a password. The system must provide a link.",
        "We need to talk about the climate. Seas rise, and harvests fail.",
        "We should answer for the outage. Our customers trusted us.",
        "Must provide: a title. Should provide: an abstract.",
        "Let's call it the tide table. It lists high water for each day.",
        "I need to leave at noon, so the meeting starts at ten.",
        "The question is older than the city itself. Plato already asked it.",
        "The prompt is the text that you send to the model.",
        "User stories describe what a person needs. Each has a role, a goal and a reason.",
        "The sky is blue because air scatters blue light. So the answer is scattering.",
        "",
    ],
)
def test_an_answer_with_one_sign_or_none_is_no_thought(answer):
    assert not begins_as_thought(answer)


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="the benchmarks are in the checkout only")
def test_the_published_precision_and_recall_are_those_of_the_promise():
    found = json.loads((ROOT / "benchmarks" / "results" / "thoughts.json").read_text("utf-8"))
    assert found["precision"]["low"] >= 0.99
    assert found["recall of other repositories"]["low"] >= 0.6
    assert found["false alarms"]["found"] == 0
    assert found["false alarms"]["of"] >= 4_000


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="the benchmarks are in the checkout only")
def test_a_missing_clone_is_one_line(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "leaks" / "thoughts.py", tmp_path, "--out", tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("invalid clones: expected commit 613b8cb")
