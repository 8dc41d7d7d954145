import ast
import json
import pickle
import re
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import harmony_conformance
from harmony_conformance.audit.redaction import (
    LOCATION_WORDS,
    PROTOCOL_WORDS,
    Excerpts,
    apply_excerpts,
    apply_to_reason,
    function_names,
    is_redacted,
    redact,
    redact_finding,
    redact_json,
)
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import InvalidJsonError, dumps
from harmony_conformance.judge.check import Finding, Outcome
from harmony_conformance.judge.judge import judge
from harmony_conformance.redactable_text import Location, RedactableText, quote
from harmony_conformance.transport.messages import Chunk, FailureKind, Request, Response
from harmony_ref import decode_bytes


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        pytest.param("My password is hunter2!", "xx xxxxxxxx xx xxxxxx0!", id="letters and digits"),
        pytest.param("Grüße, 東京 ١٢", "xxxxx, xx 00", id="of every script"),
        pytest.param("<|channel|>analysis<|message|>Sue", "<|channel|>analysis<|message|>xxx", id="markers stay"),
        pytest.param("⟦end⟧Sue", "⟦end⟧xxx", id="markers of a prompt stay"),
        pytest.param(
            "analysisWe think.assistantfinalHi", "analysisxx xxxxx.assistantfinalxx", id="glued channel words"
        ),
        pytest.param("snowassistantfinalSue", "xxxxassistantfinalxxx", id="also within a word"),
        pytest.param("finally", "xxxxxxx", id="a word that begins as a channel does"),
        pytest.param("<|Sue_Miller|>", "<|xxx_xxxxxx|>", id="a name between bars is no marker"),
        pytest.param(
            '{"role": "assistant", "name": "Sue"}', '{"role": "assistant", "xxxx": "xxx"}', id="the API's words"
        ),
    ],
)
def test_redacted_text_keeps_its_shape_and_what_is_of_the_protocol(text, shape):
    assert redact(text) == shape


@given(st.text(max_size=40))
def test_redacted_text_is_as_long_as_it_was(text):
    assert len(redact(text)) == len(text)


@given(st.text(alphabet="bdghjkquvwyz0123456789", min_size=1, max_size=20))
def test_no_letter_of_other_words_stays(text):
    assert set(redact(text)) <= {"x", "0"}


FINDING = Finding(
    message=RedactableText("the call of {} is not in the prompt", "look_up_patient"),
    location="/messages/1",
    expected=quote("Sue"),
    actual=quote("Sue Miller"),
    excerpt="<|end|>Sue",
)


@pytest.mark.parametrize(
    ("excerpts", "shown"),
    [
        (Excerpts.FULL, FINDING),
        (
            Excerpts.REDACTED,
            Finding(
                message="the call of xxxx_xx_xxxxxxx is not in the prompt",
                location="/messages/1",
                expected="xxx",
                actual="xxx xxxxxx",
                excerpt="<|end|>xxx",
            ),
        ),
        (
            Excerpts.NONE,
            Finding(message="the call of xxxx_xx_xxxxxxx is not in the prompt", location="/messages/1"),
        ),
    ],
)
def test_a_finding_shows_as_much_as_was_allowed(excerpts, shown):
    assert apply_excerpts(FINDING, excerpts, {"look_up_patient"}) == shown


def test_the_names_of_functions_are_the_applications():
    asked = {
        "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "b"}}]}, 3],
        "tools": [{"function": {"name": "a"}}, "odd"],
    }
    x = Exchange(id="x", request=Request(path="/v1/chat/completions", body=dumps(asked).encode()))
    assert function_names(x) == {"a", "b"}


def test_ids_that_are_no_tokens_name_nothing():
    body = {"choices": [{"message": {"content": "x"}, "token_ids": [10**30, -1]}]}
    x = Exchange(
        id="x",
        request=Request(path="/v1/chat/completions", body=b"{}"),
        response=Response(status=200, chunks=(Chunk(arrival_time=0.0, data=dumps(body).encode()),)),
    )
    assert function_names(x) == set()


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("the arguments were written anew: equal as JSON, another text",) * 2,
        ("the content differs from what the model wrote for the user",) * 2,
        (RedactableText("{} tokens were generated after the model had ended its turn", 14),) * 2,
        (RedactableText("a {}request was answered with HTTP {}", RedactableText("valid "), 500),) * 2,
        (RedactableText("the call of {} is not in the prompt", "look_up"), "the call of xxxx_xx is not in the prompt"),
        (
            RedactableText("the parameter {} of {} is not declared in the prompt", "city", "look_up"),
            "the parameter xxxx of xxxx_xx is not declared in the prompt",
        ),
        (
            RedactableText("effort {!r} was accepted and rendered as {}", "Sue", quote("Sue")),
            "effort 'xxx' was accepted and rendered as xxx",
        ),
        (RedactableText("{} holds Harmony markup", Location("tool_calls/12/function/name")),) * 2,
        (RedactableText("{} holds Harmony markup", "tool_calls/12/Sue"), "tool_calls/00/xxx holds Harmony markup"),
        (
            RedactableText("the exchange ended badly ({}): {}", FailureKind.RESET, "PIN is 4711"),
            "the exchange ended badly (reset): xxx xx 0000",
        ),
        (
            RedactableText("the exchange ended badly ({}): {}", FailureKind.RESET, "born 12/05/1990"),
            "the exchange ended badly (reset): xxxx 00/00/0000",
        ),
        (RedactableText("{} tokens", 123456), "000000 tokens"),
        (quote("Sue wrote this, not we"), "xxx xxxxx xxxx, xxx xx"),
    ],
)
def test_a_message_keeps_our_words_and_no_value(message, shown):
    assert redact_finding(Finding(message=message)).message == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a whole answer", "a whole answer"),
        ("stop or tool_calls", "stop or tool_calls"),
        (quote("4711"), "0000"),
        (quote(4711), "0000"),
        (quote("content/4711"), "content/0000"),
        (quote("12/05/1990"), "00/00/0000"),
        (RedactableText("at most {}", 4711), "at most 0000"),
        (quote("Sue"), "xxx"),
    ],
)
def test_a_value_keeps_our_words_and_no_number(value, shown):
    assert redact_finding(Finding(message="x", expected=value, actual=value)).expected == shown
    assert redact_finding(Finding(message="x", expected=value, actual=value)).actual == shown


@given(st.text(min_size=1), st.text(max_size=5))
@example(r"look\g<9>up", "")
@example(r"look\1up", "{} {0} %s")
def test_a_name_of_any_characters_is_masked(name, around):
    finding = Finding(message=RedactableText("the call of {} is lost", name), expected=quote(f"{around}({name})"))
    told = redact_finding(finding, {name})
    assert re.fullmatch(r"the call of (?:[x0]|[\W_])+ is lost", told.message)
    assert len(told.message) == len(finding.message)
    assert redact(told.expected) == told.expected


@given(st.text())
def test_a_location_of_any_characters_holds_known_words_alone(name):
    told = redact_finding(Finding(message="x", location=f"/tools/0/function/parameters/properties/{name}")).location
    steps = told.removeprefix("/tools/0/function/parameters/properties/").split("/")
    assert all(step == redact(step) or step in name.split("/") for step in steps)
    assert not any(re.search(r"\s", step) and step != redact(step) for step in steps)


def test_a_phrase_is_its_text_and_copies_as_it_is():
    phrase = RedactableText("{}: {}, {}", "{}", RedactableText("{!r}", "a"), InvalidJsonError("Extra data", "1 2", 2))
    copy = pickle.loads(pickle.dumps(phrase))
    assert phrase == copy == "{}: 'a', Extra data at character 2: '2'"
    assert (copy.template, copy.values) == (phrase.template, phrase.values)


def test_a_place_keeps_the_members_of_the_api_and_masks_those_of_the_application():
    finding = Finding(message="x", location="/tools/0/function/parameters/properties/salary")
    assert redact_finding(finding).location == "/tools/0/function/parameters/properties/xxxxxx"


@pytest.mark.parametrize(
    ("excerpts", "shown"),
    [
        (Excerpts.FULL, "KeyError: 'Sue' (name_is_declared, line 7)"),
        (Excerpts.REDACTED, "KeyError: 'xxx' (name_is_declared, line 7)"),
        (Excerpts.NONE, "KeyError: 'xxx' (name_is_declared, line 7)"),
    ],
)
def test_what_an_error_of_ours_quotes_is_masked(excerpts, shown):
    assert apply_to_reason("KeyError: 'Sue' (name_is_declared, line 7)", excerpts) == shown
    assert apply_to_reason("applies to answers", excerpts) == "applies to answers"


RUN = 6
KEPT = re.compile(
    rf"<\|\w+\|>|⟦\w+⟧|assistant(?:analysis|commentary|final)|(?i:\b(?:{'|'.join(sorted(PROTOCOL_WORDS))})\b)"
)
ROOT = Path(harmony_conformance.__file__).parent
SOURCES = [
    *(ROOT / "checks").rglob("*.py"),
    *(ROOT / "apis").rglob("*.py"),
    *(ROOT / name for name in ("prompts/expected_parts.py", "transport/messages.py", "audit/redaction.py")),
    *(ROOT / name for name in ("evidence/leaks/by_text.py", "redactable_text.py")),
]


def texts_of(source):
    """The texts that stand in a source, but for its docstrings."""
    nodes = list(ast.walk(ast.parse(source)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in prose}


OURS = "\0".join({text for path in SOURCES for text in texts_of(path.read_text(encoding="utf-8"))})


def runs(text):
    return {text[start : start + RUN] for start in range(len(text) - RUN + 1)}


def said(value):
    """All that users, models and servers wrote in a golden example, in each way a finding may quote it."""
    match value:
        case str():
            yield value
            yield repr(value)
            yield json.dumps(value)
        case list():
            for item in value:
                yield from said(item)
        case dict():
            for name, member in value.items():
                yield name
                yield from said(member)
        case _:
            yield json.dumps(value)


def traffic(x):
    yield from said(x.chat_request)
    yield x.response.body.decode("utf-8", "replace") if x.response else ""
    yield x.failure.detail if x.failure else ""
    if x.turn:
        yield from filter(None, (x.turn.content, x.turn.reasoning))
        for call in x.turn.tool_calls:
            yield from (call.name, call.arguments)
    for ids in filter(None, (x.output.ids, x.prompt.ids)):
        yield decode_bytes(ids).decode("utf-8", "replace")


FAILING = [example for example in golden.examples() if example.outcome in (Outcome.FAIL, Outcome.VARIANT)]


LEFT = re.compile(rf"{KEPT.pattern}|(?:analysis|commentary|final)(?=x)|\\[nrt]")


def is_masked(value):
    """Whether all that is left of a value are markers and words of the protocol."""
    return re.fullmatch(r"[x0_\W]*", LEFT.sub("", value)) is not None


def wordings(wording):
    """The texts of a finding that count as ours, and its values."""
    if not isinstance(wording, RedactableText):
        return [wording], []
    inner = [wordings(value) for value in wording.values if isinstance(value, RedactableText)]
    values = [value for value in wording.values if not isinstance(value, RedactableText | Enum | int)]
    return (
        [*wording.template.split("{}"), *(text for ours, _ in inner for text in ours)],
        [*values, *(value for _, others in inner for value in others)],
    )


WHITE_SPACE = re.compile(r"\\[nrt]")  # written as an escape, its letter is no content


@pytest.mark.parametrize("example", FAILING, ids=lambda example: example.id)
def test_nothing_of_the_traffic_survives_in_a_redacted_finding(example):
    exchanges = example.series.exchanges.values()
    written = {run for x in exchanges for text in traffic(x) for run in runs(text)}
    names = frozenset(name for x in exchanges for name in function_names(x))
    findings = [found for result in judge((example.series,), CHECKS) for found in result.findings]
    assert findings
    for found in findings:
        told = redact_finding(found, names)
        for field in (told.message, told.location, told.expected, told.actual, told.excerpt):
            kept = KEPT.sub("\0", WHITE_SPACE.sub(" ", field or ""))
            left = {run for run in runs(kept) if re.search(r"[^\Wx0_]", run) and "\0" not in run}
            assert {run for run in left & written if run not in OURS} == set()


@pytest.mark.parametrize("example", FAILING, ids=lambda example: example.id)
def test_each_text_of_a_redacted_finding_is_ours_or_masked(example):
    for result in judge((example.series,), CHECKS):
        for found in result.findings:
            told = redact_finding(found)
            for wording in (told.message, told.expected or "", told.actual or ""):
                ours, values = wordings(wording)
                assert {word for text in ours for word in re.findall(r"\w{6,}", text) if word not in OURS} == set()
                for value in values:
                    steps = value.split("/") if isinstance(value, Location) else [value]
                    assert all(
                        is_masked(step) or set(re.findall(r"\w*[^\W\d]\w*", step)) <= LOCATION_WORDS for step in steps
                    )


TRAFFIC = st.text(max_size=20) | st.lists(
    st.sampled_from(["final", "analysis", "<|end|>", "Sue", "user", " ", "0", "\\n", "É", '{"a": 1}']), max_size=8
).map("".join)
PARTS = st.recursive(
    TRAFFIC | st.none() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["json", "chunks", "path", "headers", "content"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PARTS)
@example(["finalSue"])
@example({"path": "/v1/chat/completions", "headers": {"server": "uvicorn"}, "json": {"content": "analysisSue said"}})
def test_what_was_redacted_is_known_as_such(part):
    assert is_redacted(redact_json(part))


@pytest.mark.parametrize(
    "part",
    [
        "Hi",
        {"json": {"model": "m", "messages": []}},
        {"chunks": [[0.1, '{"object": "error", "message": "no"}']]},
        ["x1"],
    ],
)
def test_what_was_not_redacted_is_known_as_such(part):
    assert not is_redacted(part)
