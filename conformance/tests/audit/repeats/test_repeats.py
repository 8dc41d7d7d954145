"""Exchanges that are counted without judging them again have the outcomes that their judgement would have."""

import copy
import importlib.util
import itertools
import json
import random
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_conformance.audit import batches as audit_batches
from harmony_conformance.audit.batches import Batch, ReadOptions, scan_batch
from harmony_conformance.audit.folder.journal import JournalEntry, entry_json
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.audit.repeats import features as features_module
from harmony_conformance.audit.repeats.memo import MOST_KNOWN, MOST_SHELLS, RepeatMemo
from harmony_conformance.audit.repeats.outline import find_outline
from harmony_conformance.audit.repeats.shells import read_shell
from harmony_conformance.evidence.file_lines import Line


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


corpora = load("corpora")
texts = load("words").texts

TOOL, CALL, CALLED, short = corpora.TOOL, corpora.CALL, corpora.CALLED, corpora.short
asked, whole, streamed = corpora.asked, corpora.whole, corpora.streamed


def cut(name, text, places):
    marks = [0, *sorted(place for place in places if place < len(text)), len(text)]
    return [{name: text[begin:end]} for begin, end in itertools.pairwise(marks) if text]


def assert_like_the_simplest(data, known):
    """Assert that a record that is plain has the outcomes of the simplest one with the same shell and features."""
    seen = corpora.sighting(data)
    if seen is None:
        return False
    key = corpora.key_of(*seen)
    if key not in known:
        known[key] = corpora.outcomes(corpora.model_record(*seen))
    assert corpora.outcomes(data) == known[key], data
    return True


def benchmark_records():
    if not corpora.BENCHMARKS.exists():
        pytest.skip("the benchmarks are in the checkout only")
    return corpora.generated_records(800)


def recorded(name):
    if not (corpora.ROOT / "reports").exists():
        pytest.skip("the reports are in the checkout only")
    return corpora.reported_records(name)


CORPORA = {
    "golden examples": lambda: random.Random(1).sample(corpora.golden_records(), 3000),
    "vLLM 0.32.0": lambda: random.Random(2).sample(recorded("vllm-0.32.0"), 800),
    "vLLM 0.11.0": lambda: random.Random(3).sample(recorded("vllm-0.11.0"), 800),
    "transformers": lambda: recorded("transformers-5.23.0"),
}


SLOW = ("vLLM 0.11.0", "transformers", "generated log")
ALL_CORPORA = ["golden examples", "vLLM 0.32.0", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
CORPORA |= {"generated log": benchmark_records}


@pytest.mark.parametrize("name", ALL_CORPORA)
def test_plain_exchanges_have_the_outcomes_of_the_simplest_one_with_the_same_shell_and_features(name):
    known = {}
    plain = sum(assert_like_the_simplest(data, known) for data in CORPORA[name]())
    assert plain > 20
    assert len(known) < plain


def scan(lines, monkeypatch, memo):
    monkeypatch.setattr(audit_batches, "_memo_of", lambda _: memo)
    read = tuple(Line(offset=place, number=1, data=data) for place, data in enumerate(lines))
    result = scan_batch(Batch(file="log", lines=read), ReadOptions(excerpts=Excerpts.FULL, user_key=b"key"))
    return (
        json.dumps(entry_json(JournalEntry(digest=result.digest, tally=result.tally, sizes=())), sort_keys=True),
        result.failures,
        result.unreadable,
    )


@pytest.mark.parametrize("name", ALL_CORPORA)
def test_an_audit_has_the_same_results_with_a_memo_that_is_full_empty_small_or_missing(name, monkeypatch):
    lines = CORPORA[name]()[:300]
    expected = scan(lines, monkeypatch, None)
    memo = RepeatMemo()
    assert scan(lines, monkeypatch, memo) == expected
    assert scan(lines, monkeypatch, memo) == expected
    assert any(seen is not None and seen.known is not None for seen in map(memo.find, lines))
    assert scan(lines, monkeypatch, RepeatMemo(most_shells=2)) == expected


def test_the_memo_is_bounded():
    memo = RepeatMemo(most_shells=3)
    for number in range(10):
        data = json.dumps({"request": asked(max_tokens=100 + number), "response": whole("Far.")}).encode()
        assert memo.find(data) is None
        assert memo.find(data) is not None
    assert len(memo._entries) == 3 < MOST_SHELLS


def test_the_outcomes_of_a_shell_are_bounded(monkeypatch):
    models = [f"m{number}" for number in range(MOST_KNOWN + 9)]
    lines = [json.dumps({"request": asked(model=model), "response": whole("Far.")}).encode() for model in models]
    memo = RepeatMemo()
    scan(lines, monkeypatch, memo)
    known = [memo.find(data).known is not None for data in lines]
    assert known[-1]
    assert 0 < sum(known) <= MOST_KNOWN


@st.composite
def records(draw):
    """Return a record whose texts have words of the checks, whole or streamed, with a history, tools and limits."""
    text = st.just("Hello there.") | texts()
    history = [
        {"role": role, "content": draw(text)}
        for role in draw(st.sampled_from([(), ("system",), ("user", "assistant")]))
    ]
    request = asked(*history, **draw(st.sampled_from([{}, {"tools": [TOOL]}, {"max_tokens": 20}, {"max_tokens": 21}])))
    request["messages"][-1]["content"] = draw(text)
    content, thought = draw(text), draw(st.just("") | text)
    if draw(st.integers(0, 4)) == 0:
        content = f"{thought} {content}"
    finish = draw(st.sampled_from(["stop", "stop", "stop", "length", None]))
    if draw(st.integers(0, 2)) == 0:
        return draw(calls(request, text))
    if draw(st.booleans()):
        lines = corpora.as_records(request, whole(content, thought, finish))
    else:
        places = st.sets(st.integers(1, 60), max_size=8)
        pieces = (*cut("reasoning", thought, draw(places)), *cut("content", content, draw(places)))
        lines = corpora.as_records({**request, "stream": True}, None, streamed(*pieces, finish=finish))
    return draw(st.sampled_from([*lines]))


@st.composite
def calls(draw, request, text):
    """Return a record of a request whose history has a call, or whose answer is one, or both. Words of the checks are anywhere in them."""
    name = st.sampled_from(["call_7", "chatcmpl-tool-1", "assistantfinalYes", "Q:", "final", "a b"])
    values = draw(st.dictionaries(st.just("city") | text, text | st.integers() | st.none(), max_size=2))
    arguments = draw(st.sampled_from([json.dumps(values), short(values), json.dumps(json.dumps(values)), "{", "[]"]))
    earlier = [*CALLED[:1], {**CALLED[1]}, {**CALLED[2], "content": draw(text)}]
    made, change = {**CALL}, draw(st.sampled_from(["arguments", "id", "reasoning", "content", ""]))
    match change:
        case "arguments":
            made["function"] = {**made["function"], "arguments": arguments}
        case "id":
            made["id"] = earlier[2]["tool_call_id"] = draw(name)
        case "reasoning" | "content":
            earlier[1][change] = draw(text)
    earlier[1]["tool_calls"] = [made]
    request = {**request, "tools": [TOOL], "messages": [*request["messages"][:-1], *earlier]}
    answer = whole(draw(text), draw(st.just("") | text))
    if draw(st.booleans()):
        answer = corpora.calling(arguments, *draw(st.sampled_from([(), (arguments,)])))
        answer["choices"][0]["message"]["tool_calls"][0]["id"] = draw(name)
    events = None
    if draw(st.booleans()):
        pieces = re.findall(r"[\s\S]{1,7}", arguments)
        events = streamed({"reasoning": "Look."}, *corpora.call_deltas(*pieces), finish="tool_calls")
        request["stream"] = True
    return draw(st.sampled_from([*corpora.as_records(request, answer, events)]))


KNOWN = {}


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(records())
def test_whatever_a_text_has_it_is_judged_or_makes_no_difference(data):
    """A check that reads a text in a new way fails here: `find_features` has to know what it looks for."""
    assert_like_the_simplest(data, KNOWN)


def test_exchanges_that_differ_in_model_and_provider_alone_are_counted_by_both(monkeypatch):
    lines = [
        json.dumps(
            {
                "model": model,
                "provider": provider,
                "request": {**asked(), "model": model},
                "response": {**whole("Far."), "model": model},
            }
        ).encode()
        for model in ("m", "n")
        for provider in ("p", "q", "s t", "", None)
    ]
    memo = RepeatMemo()
    expected = scan(lines, monkeypatch, None)
    assert scan(lines, monkeypatch, memo) == expected
    assert scan(lines, monkeypatch, memo) == expected
    assert all(memo.find(data).known is not None for data in lines)
    assert scan(lines, monkeypatch, memo) == expected


DAYS = {
    "1753300000": "2025-07-23",
    "1753300000.5": "2025-07-23",
    "1753300000000": "2025-07-23",
    1753300000: "2025-07-23",
    1753300000000: "2025-07-23",
    "20250101": "2025-01-01",
    "2025-07-24T00:00:00Z": "2025-07-24",
    "tomorrow": "",
    999999999: "2001-09-09",
    "999999999": "",
}


def test_the_day_of_a_repeated_exchange_is_that_of_its_time_however_it_is_written(monkeypatch):
    lines = [
        json.dumps({"timestamp": time, "request": asked(), "response": whole("Far.")}).encode()
        for time in ("2025-07-22T00:00:00Z", 1753200000, *DAYS) * 2
    ]
    memo = RepeatMemo()
    assert scan(lines, monkeypatch, memo) == scan(lines, monkeypatch, None)
    found = {time: memo.find(line) for time, line in zip(DAYS, lines[2:], strict=False)}
    assert {time: seen.day for time, seen in found.items() if seen} == {
        time: day
        for time, day in DAYS.items()
        if time != 999999999  # a number that is no time of a log is judged each time
    }


BASES = [
    line
    for system in (
        (),
        (
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hi."},
        ),
        CALLED,
    )
    for answer, events in (
        (whole("It is far away."), None),
        (None, streamed({"reasoning": "Short."}, {"content": "Far"}, {"content": " off."})),
        (corpora.calling(), None),
        (None, streamed(*corpora.call_deltas('{"ci', 'ty": "Os', 'lo"', "}"), finish="tool_calls")),
    )
    for line in corpora.as_records(
        asked(*system, temperature=0.5, tools=[TOOL], **({"stream": True} if events else {})), answer, events
    )
]


def _places(value, path=()):
    yield path
    for name, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(one, (*path, name))


OTHERS = [
    None,
    "",
    " ",
    "x",
    "stop",
    "length",
    "assistant",
    "user",
    0,
    1,
    -1,
    2.5,
    True,
    [],
    {},
    ["x"],
    {"x": 1},
    "chatcmpl-2",
    1_750_000_009,
]


@st.composite
def changed_records(draw):
    """Return a plain record and the same with a member changed, deleted, repeated, renamed or moved; a stream may be one of events or of texts."""
    line = draw(st.sampled_from(BASES))
    record = json.loads(line)
    target, response = record, record["response"]
    is_text = isinstance(response, str)
    if is_text:
        events = [json.loads(one[6:]) for one in response.split("\n\n") if one.startswith("data: {")]
        target = {"request": record["request"], "response": events or json.loads(response)}
    for _ in range(draw(st.integers(1, 2))):
        *path, last = draw(st.sampled_from([path for path in _places(target) if path]))
        holder = target
        for step in path:
            holder = holder[step]
        match draw(st.sampled_from(["change", "delete", "repeat", "move"])), holder:
            case "change", _:
                holder[last] = copy.deepcopy(draw(st.sampled_from(OTHERS)))
            case "delete", _:
                del holder[last]
            case "repeat", list():
                holder.insert(last, holder[last])
            case "repeat", dict():
                holder[
                    draw(
                        st.sampled_from(
                            ["token_ids", "logprobs", "tool_calls", "error", "n", "stop", "refusal", "content", "x"]
                        )
                    )
                ] = holder[last]
            case "move", dict():
                holder[last] = holder.pop(last)
            case "move", list():
                holder.append(holder.pop(last))
    if is_text and isinstance(response := target.get("response"), list):
        target["response"] = "".join(
            f"data: {json.dumps(event)}\n\n" for event in response
        ) + "data: [DONE]\n\n" * draw(st.integers(0, 1))
    elif is_text:
        target["response"] = json.dumps(response)
    return line, json.dumps(target).encode()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(changed_records())
def test_a_change_with_another_outcome_has_another_shell_or_other_features(pair):
    line, changed = pair
    assert_like_the_simplest(changed, KNOWN)
    one, other = corpora.sighting(line), corpora.sighting(changed)
    assert one is not None
    if other is not None and corpora.outcomes(line) != corpora.outcomes(changed):
        assert corpora.key_of(*one) != corpora.key_of(*other)


DETECTORS = {
    "has_words": False,
    "find_user_turn": None,
    "find_doubled_text": None,
    "has_repeated_reasoning": False,
    "find_shared_thought": None,
    "begins_as_thought": False,
    "asks_for_talk": False,
    "has_speaker": False,
    "is_on_characters": False,
    "has_harmony_mention": False,
    "has_sign_of_call": False,
    "_is_clean": True,
    "_are_usual": True,
    "_are_usual_calls": True,
}


@cache
def outlined_records():
    """Return the golden records with an outline and two more, each with it and its features."""
    found = []
    more = [
        {"request": asked({"role": "user", "content": text}), "response": whole("Far.")}
        for text in ("Q: Hi.", "In UTF-8.")
    ]
    for data in (*corpora.golden_records(), *(json.dumps(record).encode() for record in more)):
        shell = read_shell(data)
        outline = find_outline(shell) if shell is not None else None
        if outline is not None:
            found.append((data, outline, shell.leaves, features_module.find_features(outline, shell.leaves)))
    return found


@pytest.mark.parametrize("name", DETECTORS)
def test_examples_show_that_a_detector_is_needed(name, monkeypatch):
    records = outlined_records()
    monkeypatch.setattr(features_module, name, lambda *_: DETECTORS[name])
    changed = [
        data for data, outline, leaves, before in records if features_module.find_features(outline, leaves) != before
    ]
    with pytest.raises(AssertionError):
        sum(assert_like_the_simplest(data, {}) for data in changed)
