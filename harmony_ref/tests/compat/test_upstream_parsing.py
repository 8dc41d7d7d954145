"""What openai_harmony's own tests say of parsing, under the names they have there, said of both APIs."""

import pytest

REPLACEMENT = "\ufffd"
END = 200007
"""`<|end|>`."""


def ids(api, text):
    return api.encoding.encode(text, allowed_special="all")


def parsed(api, text, role="assistant", **options):
    known = None if role is None else api.Role(role)
    return api.encoding.parse_messages_from_completion_tokens(ids(api, text), known, **options)


def said(api, content, channel, recipient=None, content_type=None):
    message = api.Message.from_role_and_content(api.Role.ASSISTANT, content).with_channel(channel)
    message.recipient = recipient
    message.content_type = content_type
    return message


def streamed(api, text, role="assistant", **options):
    known = None if role is None else api.Role(role)
    parser = api.StreamableParser(api.encoding, known, **options)
    for token in ids(api, text):
        parser.process(token)
    return parser


THOUGHT = 'User asks: "What is 2 + 2?" Simple arithmetic. Provide answer.'


def test_simple_reasoning_response(api):
    text = (
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|>"
        "<|start|>assistant<|channel|>final<|message|>2 + 2 = 4.<|return|>"
    )
    assert parsed(api, text) == [said(api, THOUGHT, "analysis"), said(api, "2 + 2 = 4.", "final")]


def test_simple_tool_call(api):
    text = (
        "<|channel|>analysis<|message|>User asks for the weather.<|return|>"
        "<|start|>assistant to=lookup_weather<|channel|>analysis code<|message|>"
        '{"location": "Tokyo"}<|call|>'
    )
    assert parsed(api, text) == [
        said(api, "User asks for the weather.", "analysis"),
        said(api, '{"location": "Tokyo"}', "analysis", "lookup_weather", "code"),
    ]


CALL = '{"location": "Tokyo"}'


def weather(api):
    return said(api, CALL, "commentary", "functions.get_weather", "<|constrain|>json")


def test_tool_call_with_constrain_tokenized_correctly(api):
    text = (
        f"<|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{CALL}<|call|>"
    )
    found = parsed(api, text, role=None)
    assert found == [weather(api)]
    again = api.encoding.render_conversation(api.Conversation.from_messages(found))
    assert again == ids(api, text)


def test_tool_call_with_constrain_marker_adjacent(api):
    text = f"<|start|>assistant to=functions.get_weather<|channel|>commentary<|constrain|>json<|message|>{CALL}<|call|>"
    assert parsed(api, text, role=None) == [weather(api)]


def test_tool_call_with_channel_before_recipient_and_constrain_adjacent(api):
    text = f"<|start|>assistant<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>{CALL}<|call|>"
    assert parsed(api, text, role=None) == [weather(api)]


def test_tool_response_parsing(api):
    text = '<|start|>browser.search to=assistant<|channel|>commentary<|message|>{"result": "https://openai.com/"}'
    author = api.Author.new(api.Role.TOOL, "browser.search")
    expected = api.Message.from_author_and_content(author, '{"result": "https://openai.com/"}')
    assert parsed(api, text, role=None) == [expected.with_channel("commentary").with_recipient("assistant")]


STREAMED = (
    f"<|start|>assistant<|channel|>analysis<|message|>{THOUGHT}<|end|>"
    f"<|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{CALL}<|call|>"
    "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>20 C<|end|>"
)


def test_streamable_parser(api):
    parser = streamed(api, STREAMED, role=None).process_eos()
    assert [message.to_dict() for message in parser.messages] == [
        {
            "role": "assistant",
            "name": None,
            "content": [{"type": "text", "text": THOUGHT}],
            "channel": "analysis",
        },
        {
            "role": "assistant",
            "name": None,
            "content": [{"type": "text", "text": CALL}],
            "channel": "commentary",
            "recipient": "functions.get_weather",
            "content_type": "<|constrain|>json",
        },
        {
            "role": "tool",
            "name": "functions.get_weather",
            "content": [{"type": "text", "text": "20 C"}],
            "channel": "commentary",
            "recipient": "assistant",
        },
    ]
    assert parser.messages == parsed(api, STREAMED, role=None)
    assert parser.tokens == ids(api, STREAMED)


def test_streamable_parser_tool_call_with_constrain_adjacent(api):
    text = f"<|start|>assistant<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>{CALL}<|call|>"
    assert streamed(api, text, role=None).messages == [weather(api)]


NO_MESSAGE_TOKEN = {
    "plain text": ("I must refuse", "I must refuse", None),
    "other initial headers": ("<|channel|>final I must refuse", "I must refuse", "final"),
    "a tool call": ('<|channel|>commentary to=functions.f {"a":1}', 'to=functions.f {"a":1}', "commentary"),
}
"""What stands where the header should be, and the content and channel that are made of it when not strict."""


def recovered(api, name):
    text, content, channel = NO_MESSAGE_TOKEN[name]
    good = "<|start|>assistant<|channel|>final<|message|>ok<|end|>"
    parser = streamed(api, f"{text}<|end|>{good}", strict=False)
    assert parser.messages == [said(api, content, channel), said(api, "ok", "final")]
    with pytest.raises(api.HarmonyError, match="unexpected tokens remaining in message header"):
        streamed(api, f"{text} now<|end|>{good}", strict=True)


def test_streamable_parser_missing_message_token(api):
    recovered(api, "plain text")


def test_streamable_parser_missing_message_token_other_initial_headers(api):
    recovered(api, "other initial headers")


def test_streamable_parser_missing_message_token_tool_call(api):
    recovered(api, "a tool call")


def content_of(api, content, *, ended=True):
    """The text of one message with these ids, and its deltas; both as the parser gives them."""
    prefix = ids(api, "<|start|>assistant<|message|>")
    parser = api.StreamableParser(api.encoding, None)
    deltas = []
    for token in [*prefix, *content, *([END] if ended else [])]:
        parser.process(token)
        deltas.append(parser.last_content_delta)
    parser.process_eos()
    (message,) = parser.messages
    assert message.author.role is api.Role.ASSISTANT
    return message.content[0].text, [delta for delta in deltas if delta is not None]


CHICKEN, BLANK_AND_HALF, BAD_BYTE_AND_PP = 132990, 9552, 78747
"""`Chicken`; a blank and the first byte of a longer character; a byte that begins no character, and `pp`."""


def test_streamable_parser_invalid_utf8_decoding(api):
    text, deltas = content_of(api, [CHICKEN, BLANK_AND_HALF, CHICKEN, *ids(api, "!")])
    assert deltas == ["Chicken", " ", REPLACEMENT, "Chicken!"]
    assert text == "".join(deltas)


def test_streamable_parser_invalid_utf8_decoding_split_across_tokens(api):
    text, deltas = content_of(api, [BLANK_AND_HALF, BLANK_AND_HALF, *ids(api, "worked"), *ids(api, "!")])
    assert deltas == [" ", REPLACEMENT, f" {REPLACEMENT}", "worked!"]
    assert text == "".join(deltas)


def test_streamable_parser_invalid_utf8_decoding_multi_byte_token(api):
    text, deltas = content_of(api, [BAD_BYTE_AND_PP, *ids(api, "X")])
    assert deltas == [REPLACEMENT, "ppX"]
    assert text == "".join(deltas)


def test_streamable_parser_invalid_utf8_decoding_no_eos_marker(api):
    text, deltas = content_of(api, [BLANK_AND_HALF, BLANK_AND_HALF], ended=False)
    assert text == f" {REPLACEMENT} {REPLACEMENT}"
    assert deltas == [" ", REPLACEMENT]


TRICKY = "X \ufe0f🫠 e\u0301 👩\u200d👩\u200d👧 한글 \U0010ffff ✓"


def test_streamable_parser_tricky_utf8_decoding(api):
    text, deltas = content_of(api, api.encoding.encode(TRICKY))
    assert text == "".join(deltas) == TRICKY


def test_missing_message_token_requires_non_strict_mode(api):
    completion = ids(api, "hi there<|end|>")
    assert [m.content[0].text for m in parsed(api, "hi there<|end|>", strict=False)] == ["hi there"]
    with pytest.raises(api.HarmonyError, match="Unexpected EOS while waiting for message header to complete"):
        api.encoding.parse_messages_from_completion_tokens(completion, api.Role.ASSISTANT, strict=True)


HALF_OF_A_CHARACTER = [4103, 104]
"""The first two of the three tokens of 🫠."""


def test_does_not_leak_bytes_between_messages(api):
    prefix, second = ids(api, "<|start|>assistant<|message|>"), ids(api, "clean<|end|>")
    tokens = [*prefix, *HALF_OF_A_CHARACTER, END, *prefix, *second]
    first, last = api.encoding.parse_messages_from_completion_tokens(tokens)
    assert first.content[0].text.endswith(REPLACEMENT)
    assert last.content[0].text == "clean"


def test_flushes_partial_bytes_on_eos(api):
    text, deltas = content_of(api, HALF_OF_A_CHARACTER, ended=False)
    assert text.endswith(REPLACEMENT)
    assert REPLACEMENT not in "".join(deltas)


def test_waits_for_multi_token_utf8_sequence(api):
    split = api.encoding.encode("🫠")
    assert len(split) == 3
    parser = streamed(api, "<|start|>assistant<|message|>", role=None)
    assert [parser.process(token).last_content_delta for token in split] == [None, None, "🫠"]


def test_parse_completion_with_invalid_content_token_errors_on_eos(api):
    tokens = [*ids(api, "<|start|>assistant<|message|>a"), 2**32 - 1]
    (message,) = api.encoding.parse_messages_from_completion_tokens(tokens)
    assert message.content[0].text == f"a{REPLACEMENT}"
