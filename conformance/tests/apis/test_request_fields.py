"""What servers put into the chunks of a stream beyond the fields every client knows is no fault: `obfuscation` (OpenAI), usage so far in each chunk (vLLM)."""

import json

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.data import read_example
from harmony_conformance.judge.judge import judge_one

RULES = {rule.id: rule for rule in CHECKS}
ROOT = golden.root() / "exchanges"


def streamed_examples():
    for example in golden.examples():
        text = (ROOT / example.check / f"{example.name}.json").read_text("utf-8")
        if '"events"' in text and example.name.startswith(("pass-", "variant-")):
            yield pytest.param(example, json.loads(text), id=example.id)


def with_events_changed(value, change):
    if isinstance(value, dict):
        return {
            name: change(member) if name == "events" else with_events_changed(member, change)
            for name, member in value.items()
        }
    return value


def is_chunk(event):
    return isinstance(event, dict) and bool(event.get("choices"))


def obfuscated(events):
    """A padding of random letters in each chunk, so that the length of an event tells nothing of its text."""
    return [
        {**event, "obfuscation": "hQ3b7"[: 1 + n % 5]} if is_chunk(event) else event for n, event in enumerate(events)
    ]


def counted(events):
    """The usage so far in each chunk, where the whole usage ends the stream: `continuous_usage_stats`."""
    whole = next(
        (e["usage"] for e in reversed(events) if isinstance(e, dict) and isinstance(e.get("usage"), dict)), None
    )
    last = [event for event in events if isinstance(event, dict)][-1:]
    if whole is None or not last or not last[0].get("usage") or last[0].get("choices") or "prompt_tokens" not in whole:
        return events
    prompt = whole["prompt_tokens"]
    return [
        {**event, "usage": {"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n}}
        if is_chunk(event) and not event.get("usage")
        else event
        for n, event in enumerate(events)
    ]


@pytest.mark.parametrize("change", [obfuscated, counted])
@pytest.mark.parametrize(("example", "value"), list(streamed_examples()))
def test_members_of_others_change_no_verdict(example, value, change):
    changed = with_events_changed(value, change)
    if changed == value:
        return
    again = read_example(json.dumps(changed).encode(), check=example.check, name=example.name)
    told = [judge_one(RULES[example.check], [one.series], exercised=False) for one in (example, again)]
    assert told[0].outcome is told[1].outcome
    assert [f.message for f in told[0].findings] == [f.message for f in told[1].findings]
