import pytest

from harmony_ref import (
    Author,
    Header,
    HeaderError,
    HeaderProblem,
    RenderError,
    Role,
    StreamState,
    decode,
    encode_with_special_tokens,
    read_header,
    tokens,
    write_header,
)

ASSISTANT = Author(role=Role.ASSISTANT)
TOOL = Author(role=Role.TOOL, name="functions.f")

WRITTEN = {
    "a role alone": (Header(author=ASSISTANT), "<|start|>assistant<|message|>"),
    "a recipient before the channel": (
        Header(author=ASSISTANT, recipient="functions.f", channel="commentary"),
        "<|start|>assistant to=functions.f<|channel|>commentary<|message|>",
    ),
    "everyone, who is not written": (Header(author=ASSISTANT, recipient="all"), "<|start|>assistant<|message|>"),
    "a constrained type": (
        Header(author=ASSISTANT, recipient="f", content_type="<|constrain|>json"),
        "<|start|>assistant to=f <|constrain|>json<|message|>",
    ),
    "a plain type": (
        Header(author=ASSISTANT, recipient="f", content_type="json"),
        "<|start|>assistant to=f json<|message|>",
    ),
    "a tool by its name": (Header(author=TOOL, recipient="assistant"), "<|start|>functions.f to=assistant<|message|>"),
    "a named user": (Header(author=Author(role=Role.USER, name="bob")), "<|start|>user:bob<|message|>"),
}


@pytest.mark.parametrize(("header", "text"), WRITTEN.values(), ids=WRITTEN)
def test_a_header_is_written_with(header, text):
    assert encode_with_special_tokens(text) == write_header(header)


@pytest.mark.parametrize("marker", ["<|start|>", "<|channel|>", "x<|constrain|>", "<|message|>"])
def test_a_marker_typed_into_any_field_stays_ordinary(marker):
    header = Header(author=TOOL, recipient=marker, channel=marker, content_type=marker)
    special = list(filter(tokens.is_special, write_header(header)))
    assert special == [tokens.START, tokens.CHANNEL, tokens.MESSAGE]


def test_a_long_field_is_written_in_full():
    channel = "long" * 1000
    assert f"<|start|>assistant<|channel|>{channel}<|message|>" == decode(
        write_header(Header(author=ASSISTANT, channel=channel))
    )


def test_a_tool_needs_a_name():
    with pytest.raises(RenderError, match="Tools should have a name!") as caught:
        write_header(Header(author=Author(role=Role.TOOL)))
    assert caught.value.expected == "Author.name"


ROUND_TRIPS = [
    Header(author=ASSISTANT, channel="final"),
    Header(author=ASSISTANT, recipient="functions.f", channel="commentary", content_type="<|constrain|>json"),
    Header(author=TOOL, recipient="assistant", channel="commentary"),
    Header(author=Author(role=Role.USER)),
]


@pytest.mark.parametrize("header", ROUND_TRIPS, ids=lambda header: decode(write_header(header)))
def test_a_header_is_read_back(header):
    assert header == read_header(write_header(header)[1:-1])


FAULTS = {
    "bytes that are no text": ([4103], None, HeaderProblem.NOT_TEXT, "could not decode header"),
    "an unknown id": ([201089], None, HeaderProblem.NOT_TEXT, "could not decode header"),
    "a channel marker without a channel": (
        "assistant<|channel|> final",
        None,
        HeaderProblem.NO_CHANNEL_VALUE,
        "channel marker present but no channel value found in header",
    ),
    "no role": ("<|channel|>final", None, HeaderProblem.NO_ROLE, "message header did not contain a role"),
    "an unknown role": ("functions.f", None, HeaderProblem.UNKNOWN_ROLE, "Unknown role: functions.f"),
    "words that mean nothing": (
        "a b c",
        Role.USER,
        HeaderProblem.WORDS_LEFT,
        'unexpected tokens remaining in message header: Some("a")',
    ),
    "words that do not print": (
        "x\xa0\u09be\u200b b c",
        Role.USER,
        HeaderProblem.WORDS_LEFT,
        'unexpected tokens remaining in message header: Some("x\\u{a0}\\u{9be}\\u{200b}")',
    ),
}


@pytest.mark.parametrize(("header", "role", "problem", "text"), FAULTS.values(), ids=FAULTS)
def test_a_header_is_refused_for(header, role, problem, text):
    raw = encode_with_special_tokens(header) if isinstance(header, str) else header
    with pytest.raises(HeaderError) as caught:
        read_header(raw, role=role, position=7)
    error = caught.value
    assert (problem, text, tuple(raw)) == (error.problem, str(error), error.header)
    assert (error.position, error.state) == (7, StreamState.HEADER)
    assert error.expected
