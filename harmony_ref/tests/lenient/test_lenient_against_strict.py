"""Lenient parsing held to strict parsing: equal where that reads rightly, different only where a table says so.

What strict parsers read comes from openai-harmony 0.0.8.
"""

import json
from pathlib import Path

import pytest

from harmony_ref import Author, Message, Role, StreamState, encode_with_special_tokens
from harmony_ref.lenient.errors import RecoveryRule
from harmony_ref.lenient.parse import parse_leniently

CASES = [
    row
    for name in ("header", "parse")
    for row in json.loads((Path(__file__).parents[1] / "cases" / f"{name}.json").read_text("utf-8"))
]
JSON = "<|constrain|>json"
TOOL = Author(role=Role.TOOL, name="functions.f")
FINAL = "<|start|>assistant<|channel|>final"
HI, OK, YO = (Message(author=Role.ASSISTANT, content=text, channel="final") for text in ("hi", "ok", "yo"))


def said(content="C", **fields):
    return Message(**{"author": Role.ASSISTANT, **fields, "content": content})


# Where strict parsers succeed and misread: the case, the rule that says so, and what was meant.
DIFFERENCES = {
    "none/to=x": (RecoveryRule.MISSING_ROLE, [said(recipient="x")]),
    "none/to=functions.f<|channel|>commentary": (
        RecoveryRule.MISSING_ROLE,
        [said(recipient="functions.f", channel="commentary")],
    ),
    "none/to=functions.f <|constrain|>json": (
        RecoveryRule.MISSING_ROLE,
        [said(recipient="functions.f", content_type=JSON)],
    ),
    "none/ASSISTANT to=x": (RecoveryRule.ROLE_SPELLING, [said(recipient="x")]),
    "none/assistant assistant": (RecoveryRule.ROLE_SPELLING, [said()]),
    "none/assistant<|channel|>commentary json": (
        RecoveryRule.LONE_CONTENT_TYPE,
        [said(channel="commentary", content_type="json")],
    ),
    "none/assistant<|channel|>final json": (
        RecoveryRule.LONE_CONTENT_TYPE,
        [said(channel="final", content_type="json")],
    ),
    "none/assistant<|channel|>final <|constrain|>json": (
        RecoveryRule.LONE_CONTENT_TYPE,
        [said(channel="final", content_type=JSON)],
    ),
    "none/assistant<|channel|>final<|constrain|>json": (
        RecoveryRule.LONE_CONTENT_TYPE,
        [said(channel="final", content_type=JSON)],
    ),
    "none/assistant<|channel|>final <|constrain|>": (
        RecoveryRule.LONE_CONTENT_TYPE,
        [said(channel="final", content_type="<|constrain|>")],
    ),
    "none/assistant <|constrain|>json": (RecoveryRule.LONE_CONTENT_TYPE, [said(content_type=JSON)]),
    "none/assistant json": (RecoveryRule.LONE_CONTENT_TYPE, [said(content_type="json")]),
    "none/assistant<|channel|>analysis <|channel|>final": (RecoveryRule.DOUBLED_CHANNEL, [said(channel="analysis")]),
    "none/assistant<|channel|>commentary to= functions.f": (
        RecoveryRule.SPLIT_RECIPIENT,
        [said(recipient="functions.f", channel="commentary")],
    ),
    "none/assistant<|channel|>commentary to =functions.f": (
        RecoveryRule.SPLIT_RECIPIENT,
        [said(recipient="functions.f", channel="commentary")],
    ),
    "none/assistant<|channel|>commentary to=functions.f\xa0json": (
        RecoveryRule.ODD_WHITE_SPACE,
        [said(recipient="functions.f", channel="commentary", content_type="json")],
    ),
    "none/assistant<|channel|>commentary to=functions.f<|channel|>commentary": (
        RecoveryRule.DOUBLED_CHANNEL,
        [said(recipient="functions.f", channel="commentary")],
    ),
    "none/assistant to=functions.f<|channel|>commentary<|reserved_200013|>": (
        RecoveryRule.STRAY_IN_HEADER,
        [said(recipient="functions.f", channel="commentary")],
    ),
    "none/functions.f json": (RecoveryRule.LONE_CONTENT_TYPE, [said(author=TOOL, content_type="json")]),
    **{
        f"{role}/{header}": (rule, [said(author=role, **fields)])
        for role in (Role.ASSISTANT, Role.TOOL, Role.USER)
        for header, rule, fields in (
            (" json", RecoveryRule.LONE_CONTENT_TYPE, {"content_type": "json"}),
            ("json extra", RecoveryRule.EXTRA_WORDS, {"content_type": "json"}),
            (
                "<|channel|>final <|constrain|>json",
                RecoveryRule.LONE_CONTENT_TYPE,
                {"channel": "final", "content_type": JSON},
            ),
        )
    },
    **{
        f"{role}/{FINAL}": (RecoveryRule.DOUBLED_START, [said(channel="final")])
        for role in (Role.ASSISTANT, Role.TOOL, Role.USER)
    },
    f"{FINAL}<|message|>hi{FINAL}<|message|>yo<|end|>": (RecoveryRule.MISSING_END, [HI, YO]),
    f"{FINAL} hello there<|end|>{FINAL}<|message|>ok<|end|>": (
        RecoveryRule.MISSING_MESSAGE,
        [said(" hello there", channel="final"), OK],
    ),
    f"{FINAL}<|message|>hi<|end|> as the assistant": (RecoveryRule.DOUBLED_START, [HI]),
    f"hi<|end|>{FINAL}<|message|>ok<|end|> as the assistant": (RecoveryRule.MISSING_MESSAGE, [said("hi"), OK]),
    "a,201089,b,c": (RecoveryRule.UNKNOWN_ID, [said("a\ufffdbc", channel="final")]),
    "a,201089,b no stop": (RecoveryRule.UNKNOWN_ID, [said("a\ufffdb", channel="final")]),
    "partial,unknown,a": (RecoveryRule.UNKNOWN_ID, [said(" \ufffd\ufffda", channel="final")]),
}


def read(row):
    return parse_leniently(row["tokens"], row["role"] and Role(row["role"]))


def key(row):
    """What the table calls a case: the same text is there with and without a role."""
    is_header = "text" in row
    return row["label"] if is_header or row["role"] is None else f"{row['label']} as the {row['role']}"


def test_what_strict_parsers_read_rightly_is_read_equally_and_the_rest_as_the_table_says():
    different = {}
    for row in CASES:
        if row["strict"] and "ok" in row:
            lenient = read(row)
            if row["ok"] != [message.to_dict() for message in lenient.closed_messages]:
                different[key(row)] = lenient
    assert set(DIFFERENCES) == set(different)
    for name, (rule, expected) in DIFFERENCES.items():
        assert expected == list(different[name].closed_messages), name
        assert rule in [error.rule for error in different[name].errors], name


def test_what_strict_parsers_refuse_is_never_without_an_error_but_for_an_open_turn():
    refused = [row for row in CASES if row["strict"] and "err" in row]
    assert len(refused) > 60
    for row in refused:
        lenient = read(row)
        is_open_turn = lenient.remainder is not None and lenient.remainder.message is None
        assert lenient.errors or is_open_turn, row["label"]


COMPLETION = encode_with_special_tokens(
    "<|channel|>analysis<|message|>Wetter 🫠 und Hotel.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>First the weather…<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
    '<|message|>{"city": "한글"}<|call|>'
    "<|start|>assistant to=functions.find_hotel<|channel|>commentary code<|message|>find()<|call|>"
    "<|start|>assistant<|channel|>final<|message|>Hé 🏳️‍🌈!<|return|>"
)
TO_WEATHER = "assistant<|channel|>commentary to=functions.get_weather"
TO_HOTEL = "assistant to=functions.find_hotel"
# Channel, recipient and content type after each token of a header.
KNOWN = {
    "": (None, None, None),
    "<|channel|>": (None, None, None),
    "<|channel|>analysis": ("analysis", None, None),
    "assistant": (None, None, None),
    "assistant<|channel|>": (None, None, None),
    "assistant<|channel|>final": ("final", None, None),
    "assistant<|channel|>comment": ("comment", None, None),
    "assistant<|channel|>commentary": ("commentary", None, None),
    "assistant<|channel|>commentary to": ("commentary", None, None),
    "assistant<|channel|>commentary to=": ("commentary", "", None),
    "assistant<|channel|>commentary to=functions": ("commentary", "functions", None),
    "assistant<|channel|>commentary to=functions.get": ("commentary", "functions.get", None),
    TO_WEATHER: ("commentary", "functions.get_weather", None),
    f"{TO_WEATHER} ": ("commentary", "functions.get_weather", None),
    f"{TO_WEATHER} <|constrain|>": ("commentary", "functions.get_weather", "<|constrain|>"),
    f"{TO_WEATHER} <|constrain|>json": ("commentary", "functions.get_weather", JSON),
    "assistant to": (None, None, None),
    "assistant to=": (None, "", None),
    "assistant to=functions": (None, "functions", None),
    "assistant to=functions.find": (None, "functions.find", None),
    "assistant to=functions.find_h": (None, "functions.find_h", None),
    TO_HOTEL: (None, "functions.find_hotel", None),
    f"{TO_HOTEL}<|channel|>": (None, "functions.find_hotel", None),
    f"{TO_HOTEL}<|channel|>comment": ("comment", "functions.find_hotel", None),
    f"{TO_HOTEL}<|channel|>commentary": ("commentary", "functions.find_hotel", None),
    f"{TO_HOTEL}<|channel|>commentary code": ("commentary", "functions.find_hotel", "code"),
}


@pytest.mark.parametrize("cut", range(len(COMPLETION) + 1))
def test_a_completion_that_is_cut_keeps_what_was_finished_and_what_is_known_of_the_rest(oracle, cut):
    given = COMPLETION[:cut]
    read = parse_leniently(given, Role.ASSISTANT)
    whole = oracle.parse(COMPLETION, "assistant", strict=True)["ok"]
    finished = sum(token in {200002, 200007, 200012} for token in given)
    assert whole[:finished] == [message.to_dict() for message in read.messages]
    assert given == read.tokens
    strict = oracle.parse(given, "assistant", strict=True)
    if "ok" in strict:
        assert strict["ok"] == [message.to_dict() for message in read.closed_messages]
        assert not read.errors
        return
    remainder = read.remainder
    text = oracle.inner.decode_utf8(list(remainder.tokens))
    header = text.removeprefix("<|start|>")
    fields = None
    if remainder.header is not None:
        fields = (remainder.header.channel, remainder.header.recipient, remainder.header.content_type)
    known = None if text == "<|start|>" else KNOWN[header]
    assert (StreamState.HEADER, "", known) == (remainder.state, remainder.text, fields)
    is_open_turn = text in {"", "<|start|>assistant"}
    assert [error.rule for error in read.errors] == ([] if is_open_turn else [RecoveryRule.CUT_HEADER])
