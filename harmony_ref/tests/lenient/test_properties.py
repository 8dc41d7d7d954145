"""What holds for lenient parsing whatever the tokens are.

HARMONY_ORACLE_EXAMPLES sets the number of examples per property.
"""

import functools
import json
import operator
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from harmony_ref import Role, StreamState, encode, encode_with_special_tokens, text_of, tokens
from harmony_ref.lenient.errors import RecoveryRule
from harmony_ref.lenient.parse import parse_leniently
from harmony_ref.lenient.result import SegmentKind
from harmony_ref.lenient.token_text import text_of_tokens

CASES = [
    row
    for name in ("header", "parse")
    for row in json.loads((Path(__file__).parents[1] / "cases" / f"{name}.json").read_text("utf-8"))
]
MARKERS = [200002, 200003, 200005, 200006, 200007, 200008, 200012]
WORDS = [
    *("assistant", "user", "tool", "functions.f", "assistantassistant", "Assistant", "user:bob"),
    *("analysis", "commentary", "final", "to=functions.f", " to=functions.f", "to=", " to", " =x"),
    *("json", " json", " code", " x", "hello there", "{}", "<", "<|channel|>", "<|start|>", "<|constrain|>json"),
    *(" ", "\n", "\xa0", "\x0b", "\x1c", "\u3000", "é", "🫠"),
]
HEADERS = [
    "<|channel|>analysis",
    "<|start|>assistant<|channel|>final",
    "<|start|>assistant<|channel|>final <|constrain|>json",
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json",
    "<|start|>assistant to=functions.f<|channel|>commentary json",
    "<|start|>functions.f to=assistant<|channel|>commentary",
    "<|start|>user",
]
ODD_TOKENS = [199998, 199999, 200013, 200018, 201088, 201089, -1, 2**33, 78747, 186978, 4103, 104, 254, 160]
words = st.sampled_from(WORDS).map(encode)
atoms = st.one_of(
    st.sampled_from(MARKERS).map(lambda token: [token]),
    words,
    words,
    st.sampled_from(ODD_TOKENS).map(lambda token: [token]),
    st.integers().map(lambda token: [token]),
)
stops = st.sampled_from([200002, 200007, 200012]).map(lambda token: [token])
well_formed = st.builds(
    lambda header, content, stop: [*encode_with_special_tokens(header), 200008, *encode(content), *stop],
    st.sampled_from(HEADERS),
    st.sampled_from(["", "hi", " there\n", "🫠", "{}", "<|end|>"]),
    stops,
)
completions = st.lists(st.one_of(atoms, atoms, well_formed), max_size=12).map(
    lambda runs: functools.reduce(operator.iadd, runs, [])
)
roles = st.sampled_from([None, None, Role.ASSISTANT, Role.ASSISTANT, Role.USER, Role.TOOL])

SENSIBLE = ["", " to=functions.f", " to=python", "<|channel|>final", "<|channel|>commentary", " json", " code"]
SENSIBLE += [" <|constrain|>json", "<|constrain|>json", "<|channel|>analysis to=python code", " x"]


@st.composite
def nearly_well_formed(draw):
    """Ids and a role: messages of sensible words, and sometimes one atom too many or a token too few."""
    role = draw(st.sampled_from([None, Role.ASSISTANT]))
    ids = []
    for number in range(draw(st.integers(1, 3))):
        author = "" if role and not number else draw(st.sampled_from(["assistant", "assistant", "user", "functions.f"]))
        header = author + "".join(draw(st.lists(st.sampled_from(SENSIBLE), max_size=3)))
        ids += [*([200006] if author else []), *encode_with_special_tokens(header), 200008]
        ids += [*encode(draw(st.sampled_from(["", "hi", " there\n", "🫠", "{}", "<|end|>"]))), *draw(stops)]
    place = draw(st.integers(0, len(ids)))
    match draw(st.sampled_from(["keep", "keep", "keep", "add", "drop", "cut"])):
        case "add":
            ids[place:place] = draw(atoms)
        case "drop":
            del ids[place : place + 1]
        case "cut":
            del ids[place:]
    return ids, role


anything = st.one_of(nearly_well_formed(), nearly_well_formed(), nearly_well_formed(), st.tuples(completions, roles))

EXAMPLES = int(os.environ.get("HARMONY_ORACLE_EXAMPLES", "400"))
examples = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 1000,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
NO_TOOL = re.compile(
    "to=.*|(user|assistant|system|developer)(:.+|(assistant)*(analysis|commentary|final)?)|analysis|commentary|final",
    re.IGNORECASE | re.DOTALL,
)
"""What is no name of a tool."""

SEEN_THROUGH = re.compile("|".join([*(role.value for role in Role), r"<\|\w+\|>", "to", "="]), re.IGNORECASE)


def check_that_nothing_is_lost(ids, read):
    """Every token is in one segment, and what a segment says is in its message."""
    assert list(ids) == read.tokens
    assert [segment.start for segment in read.segments] == [0, *(segment.stop for segment in read.segments)][
        : len(read.segments)
    ]
    for before, after in pairwise(segment.message for segment in read.segments if segment.message is not None):
        assert 0 <= after - before <= 1
    for segment in read.segments:
        assert segment.text == text_of_tokens(segment.tokens)
        assert (segment.kind is SegmentKind.JUNK) == (segment.message is None)
        if segment.message is not None:
            check_that_it_is_said(segment, read)


def check_that_it_is_said(segment, read):
    header = read.messages[segment.message] if segment.message < len(read.messages) else None
    content = read.remainder.text if header is None else text_of(header)
    if segment.kind is SegmentKind.CONTENT:
        # A token may hold both the end of a header without marker and the beginning of what follows it.
        assert content.endswith(segment.text)
    elif segment.kind is SegmentKind.HEADER and header is not None:
        said = [header.author.name, header.recipient, header.channel, header.content_type]
        text = f"{' '.join(word for word in said if word is not None)} {content}".lower()
        for word in re.findall(r"[^\s<:]+", SEEN_THROUGH.sub(" ", segment.text).lower()):
            assert word in text


@pytest.mark.parametrize("row", CASES, ids=[str(number) for number in range(len(CASES))])
def test_nothing_of_a_known_case_is_lost(row):
    for role in {None, row["role"]}:
        check_that_nothing_is_lost(row["tokens"], parse_leniently(row["tokens"], role and Role(role)))


@examples
@given(given=anything)
def test_nothing_of_any_completion_is_lost(given):
    ids, role = given
    check_that_nothing_is_lost(ids, parse_leniently(ids, role))


@examples
@given(given=anything)
def test_without_an_error_strict_parsing_succeeds_and_reads_the_same(oracle, given):
    ids, role = given
    read = parse_leniently(ids, role)
    if read.errors:
        return
    remainder = read.remainder
    finished = ids
    if remainder is not None and remainder.state is StreamState.HEADER:
        # An open turn: there is nothing of it to read.
        finished, role = ids[: remainder.start], role if remainder.start else None
    event("without an error" if finished else "without anything")
    assert oracle.parse(finished, role and role.value, strict=True) == {
        "ok": [m.to_dict() for m in read.closed_messages]
    }


def framed(ids):
    """The header and the content of each message, in which neither the order of words nor the stop token counts."""
    parts = [[]]
    for token in ids:
        parts[-1].append(token)
        if token in tokens.STOP_TOKENS or token == tokens.MESSAGE:
            parts.append([])
    return [sorted(set(part) - tokens.STOP_TOKENS) if part[-1:] == [tokens.MESSAGE] else part[:-1] for part in parts]


def is_misread_all_the_same(message):
    """Whether rendering gives the same tokens although a field is what no field can be."""
    fields = [message.get(name) for name in ("name", "recipient", "channel")]
    has_space = any(field is not None and re.search(r"\s|<\|", field) for field in fields)
    return has_space or message.get("recipient") == "" or NO_TOOL.fullmatch(message.get("name", "")) is not None


def is_read_rightly(oracle, ids, role, messages):
    """Whether rendering what strict parsing read gives the same tokens again."""
    if any(map(is_misread_all_the_same, messages)):
        return False
    prompt = [] if role is None else [tokens.START, *encode(role.value)]
    rendered = [oracle.render(message, note=False) for message in messages]
    if any("err" in run for run in rendered):
        return False
    again = [token for run in rendered for token in run["ok"]]
    given = [*prompt, *ids] if ids[-1:] and ids[-1] in tokens.STOP_TOKENS else [*prompt, *ids, tokens.END]
    return framed(again) == framed(given)


@examples
@given(given=anything)
def test_what_strict_parsing_reads_rightly_is_read_equally(oracle, given):
    ids, role = given
    strict = oracle.parse(ids, role and role.value, strict=True) if all(0 <= token < 2**32 for token in ids) else {}
    if "ok" not in strict or not is_read_rightly(oracle, ids, role, strict["ok"]):
        event("refused or misread")
        return
    event(f"read rightly: {min(2, len(strict['ok']))} messages")
    read = parse_leniently(ids, role)
    assert strict["ok"] == [message.to_dict() for message in read.closed_messages]
    assert RecoveryRule.JUNK not in {error.rule for error in read.errors}
    assert not any(segment.kind is SegmentKind.JUNK for segment in read.segments)


def test_many_known_cases_are_read_rightly_so_that_the_comparison_means_something(oracle):
    rightly = [
        row
        for row in CASES
        if row["strict"]
        and "ok" in row
        and row["tokens"]
        and is_read_rightly(oracle, row["tokens"], row["role"] and Role(row["role"]), row["ok"])
    ]
    assert len(rightly) > 40
    for row in rightly:
        read = parse_leniently(row["tokens"], row["role"] and Role(row["role"]))
        assert row["ok"] == [message.to_dict() for message in read.closed_messages]
        assert not read.errors


# Inputs of n tokens that would make a careless reader go over them again and again.
HOSTILE = {
    "words in a header": lambda n: [200006, *[29186, 1354] * (n // 2), 200008, 200007],
    "a header that never ends": lambda n: [200006, *[1354] * n],
    "a header that a stop token ends": lambda n: [200006, 173781, *[1354] * n, 200007],
    "white space in a header": lambda n: [200006, *[220] * n, 200007],
    "channels in a header": lambda n: [200006, *[200005, 17196] * (n // 2), 200008],
    "constrains in a header": lambda n: [200006, *[200003] * n, 200008],
    "recipients in a header": lambda n: [200006, 173781, *[316, 28, 65] * (n // 3), 200008],
    "unknown ids in a header": lambda n: [200006, *[201089] * n, 200008],
    "broken bytes in a header": lambda n: [200006, *[186978] * n, 200008],
    "starts": lambda n: [200006] * n,
    "headers that starts end": lambda n: [200006, 173781] * (n // 2),
    "headers that stop tokens end": lambda n: [200006, 1354, 200007] * (n // 3),
    "junk and stop tokens": lambda n: [200007, 1354] * (n // 2),
    "recipients before a channel": lambda n: [200008, 200007, *[316, 28, 65] * (n // 3), 200005, 17196, 200008],
    "words that end in to= before a channel": lambda n: [
        200008,
        200007,
        *[65, 935, 28] * (n // 3),
        200005,
        17196,
        200008,
    ],
    "characters cut in two places each": lambda n: [200008, *[4103, 64] * (n // 2), 200007],
    "junk before constrains": lambda n: [200008, 200007, *[1354, 200003] * (n // 2), 200007],
    "roles before a channel": lambda n: [200008, 200007, *[173781] * n, 200005, 17196, 200008],
    "channels in content": lambda n: [200008, *[200005, 17196] * (n // 2), 200008],
    "channels in content, each with a header": lambda n: [200008, *[200005, 17196, 200008, 64] * (n // 4)],
    "stray markers in content": lambda n: [200008, *[200003, 64] * (n // 2), 200007],
    "unknown ids in content": lambda n: [200008, *[201089, 64] * (n // 2), 200007],
    "broken bytes in content": lambda n: [200008, *[186978] * n, 200007],
    "short messages": lambda n: [200006, 173781, 200008, 200007] * (n // 4),
    "messages without an end": lambda n: [200006, 173781, 200008, 64] * (n // 4),
}


@pytest.mark.parametrize("role", [None, Role.ASSISTANT], ids=["no role", "a role"])
@pytest.mark.parametrize("of_length", HOSTILE.values(), ids=HOSTILE)
def test_each_token_is_decoded_a_few_times_however_many_there_are(monkeypatch, of_length, role):
    decoded = 0
    decode_bytes = tokens.decode_bytes

    def counting(run):
        nonlocal decoded
        decoded += len(run)
        return decode_bytes(run)

    monkeypatch.setattr(tokens, "decode_bytes", counting)
    counts = []
    for length in (1_000, 4_000):
        decoded = 0
        ids = of_length(length)
        assert ids == parse_leniently(ids, role).tokens
        # A header inside content is looked at with up to 64 tokens before it is one.
        assert decoded < 80 * len(ids)
        counts.append(decoded)
    # Four times the tokens, four times the work; a reader that goes back to the beginning needs sixteen times.
    assert counts[1] < 4.5 * counts[0] + 1_000


def test_a_long_hostile_header_is_read():
    ids = [200006, *encode("assistant " + "to=x y <|channel|>z " * 4_000), 200008, 64, 200007]
    read = parse_leniently(ids)
    assert [(text_of(message), message.recipient, message.channel) for message in read.messages] == [("a", "x", "z")]
    assert ids == read.tokens


@examples
@given(text=st.text(max_size=30), role=roles)
def test_any_text_without_markers_is_said(text, role):
    ids = encode(text)
    read = parse_leniently(ids, role)
    check_that_nothing_is_lost(ids, read)
    spoken = "".join(segment.text for segment in read.segments if segment.kind is not SegmentKind.HEADER)
    assert spoken.strip() in text
