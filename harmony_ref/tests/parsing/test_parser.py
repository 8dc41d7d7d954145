import contextlib
import time

import pytest

from harmony_ref import (
    Delta,
    HeaderError,
    Message,
    MessageFinished,
    MessageStarted,
    ParseError,
    Role,
    StreamParser,
    StreamState,
    UnexpectedEndError,
    UnexpectedTokenError,
    encode_with_special_tokens,
    parse,
    text_of,
    tokens,
)

COMPLETIONS = {
    "reasoning, then an answer": (
        "<|channel|>analysis<|message|>Think 🫠 한글.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Hé 🏳️‍🌈!<|return|>"
    ),
    "a preamble and a call": (
        "<|channel|>commentary<|message|>First…<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    ),
    "markers inside content": "<|message|>a<|start|>b<|channel|>c<|message|>d<|constrain|>e<|endoftext|><|end|>",
    "an empty message": "<|channel|>final<|message|><|return|>",
    "a message that was cut off": "<|channel|>final<|message|>half",
    "a header that swallows messages": "<|channel|>final hi<|end|><|start|>assistant<|channel|>final<|message|>ok<|end|>",
}
RUNS = {
    **{name: encode_with_special_tokens(text) for name, text in COMPLETIONS.items()},
    "broken bytes": [200005, 17196, 200008, 78747, 64, 4103, 186978, 104, 200007],
    "a character that never ends": [200005, 17196, 200008, 64, 4103, 104],
    "an unknown id": [200005, 17196, 200008, 64, 201089, 65, 200002],
}
DEFECTIVE = {
    "two stop tokens": encode_with_special_tokens("<|channel|>final<|message|>hi<|end|><|return|>"),
    "an unreadable header": encode_with_special_tokens("a b c<|message|>hi<|end|>"),
    "a second header that is unreadable": encode_with_special_tokens(
        "<|message|>hi<|end|><|start|>x<|message|>y<|end|>"
    ),
    "a header without content": encode_with_special_tokens("<|channel|>final hi<|end|>"),
}


def merged(events):
    """The events with neighbouring deltas joined, which is all that splitting may change."""
    joined = []
    for event in events:
        if isinstance(event, Delta) and joined and isinstance(joined[-1], Delta):
            joined[-1] = Delta(text=joined[-1].text + event.text, header=event.header)
        else:
            joined.append(event)
    return joined


def fed(*runs, strict=True):
    """All events of the runs and of the end, and the error that stopped them."""
    parser = StreamParser(Role.ASSISTANT, strict=strict)
    events = []
    try:
        for run in runs:
            events += parser.feed(run)
        events += parser.finish()
    except ParseError as error:
        return merged([*events, *error.events]), (type(error), str(error), error.position, error.state)
    return merged(events), None


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lenient"])
@pytest.mark.parametrize("run", [*RUNS.values(), *DEFECTIVE.values()], ids=[*RUNS, *DEFECTIVE])
def test_no_split_changes_what_is_found_in(run, strict):
    expected = fed(run, strict=strict)
    assert expected == fed(*([token] for token in run), strict=strict)
    for first in range(len(run) + 1):
        for second in range(first, len(run) + 1):
            assert expected == fed(run[:first], run[first:second], run[second:], strict=strict)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_deltas_of_a_message_are_its_text(run):
    events, _ = fed(*([token] for token in run))
    text = ""
    for event in events:
        match event:
            case MessageStarted():
                text = ""
            case Delta():
                text += event.text
            case MessageFinished():
                assert text_of(event.message) == text


def test_events_tell_the_header_the_text_and_the_stop_token():
    run = RUNS["a preamble and a call"]
    match StreamParser(Role.ASSISTANT).feed(run):
        case [
            MessageStarted(),
            Delta(text="First…"),
            MessageFinished(stop=tokens.END),
            MessageStarted(header=header),
            Delta(text="{}"),
            MessageFinished(message=message, stop=tokens.CALL),
        ]:
            assert (header.recipient, header.channel) == ("functions.f", "commentary")
            assert (
                Message(
                    author=Role.ASSISTANT,
                    content="{}",
                    channel="commentary",
                    recipient="functions.f",
                    content_type="<|constrain|>json",
                )
                == message
            )
        case events:
            pytest.fail(str(events))


def test_a_message_that_was_cut_off_has_no_stop_token():
    events, error = fed(RUNS["a message that was cut off"])
    assert error is None
    assert isinstance(events[-1], MessageFinished)
    assert events[-1].stop is None


def test_a_character_that_never_ends_appears_in_the_message_though_in_no_delta_of_the_library():
    parser = StreamParser(Role.ASSISTANT)
    parser.feed(RUNS["a character that never ends"])
    assert (parser.current_content, parser.last_content_delta) == ("a", None)
    parser.finish()
    assert text_of(parser.messages[0]) == "a\ufffd"


def test_a_stray_token_is_refused_with_its_place_and_what_should_stand_there():
    run = DEFECTIVE["two stop tokens"]
    with pytest.raises(UnexpectedTokenError, match="Unexpected token 200002 while expecting start token") as caught:
        parse(run, Role.ASSISTANT)
    error = caught.value
    assert (len(run) - 1, tokens.RETURN) == (error.position, error.token)
    assert (error.state, error.expected) == (StreamState.EXPECT_START, "<|start|>")


def test_what_was_read_before_an_error_is_not_lost():
    with pytest.raises(ParseError) as caught:
        parse(DEFECTIVE["two stop tokens"], Role.ASSISTANT)
    assert [text_of(event.message) for event in caught.value.events if isinstance(event, MessageFinished)] == ["hi"]


def test_an_unreadable_header_is_refused_where_it_ends():
    with pytest.raises(HeaderError) as caught:
        parse(DEFECTIVE["a second header that is unreadable"], Role.ASSISTANT)
    assert str(caught.value) == "Unknown role: x"
    assert caught.value.position == 5


def test_the_end_inside_a_header_is_refused_and_can_be_continued():
    parser = StreamParser(Role.ASSISTANT)
    parser.feed(encode_with_special_tokens("<|channel|>"))
    with pytest.raises(UnexpectedEndError) as caught:
        parser.finish()
    assert (caught.value.position, caught.value.state, caught.value.expected) == (1, StreamState.HEADER, "<|message|>")
    parser.feed(encode_with_special_tokens("final<|message|>ok"))
    parser.finish()
    assert [Message(author=Role.ASSISTANT, content="ok", channel="final")] == list(parser.messages)


def test_a_lenient_parser_keeps_the_text_of_a_first_message_without_its_marker():
    run = encode_with_special_tokens("<|channel|>final hi  there<|end|>")
    assert [Message(author=Role.ASSISTANT, content="hi there", channel="final")] == parse(
        run, Role.ASSISTANT, strict=False
    )


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_what_was_read_from_a_parser_never_changes(run):
    parser = StreamParser(Role.ASSISTANT)
    held = []
    for token in run:
        parser.process(token)
        values = (parser.tokens, parser.messages, parser.state_data, parser.current_content)
        held.append((values, repr(values)))
    parser.finish()
    for values, then in held:
        assert repr(values) == then
    assert [values[0] for values, _ in held] == [run[: count + 1] for count in range(len(run))]


def test_content_is_the_same_whether_it_is_read_on_the_way_or_at_the_end():
    run = RUNS["reasoning, then an answer"]
    reader, other = StreamParser(Role.ASSISTANT), StreamParser(Role.ASSISTANT)
    for token in run:
        reader.process(token)
        _ = reader.current_content
        other.process(token)
    assert reader.current_content == other.current_content
    assert reader.messages == other.messages


def test_a_generator_of_tokens_is_read_once():
    run = RUNS["an empty message"]
    assert parse(run, Role.ASSISTANT) == parse(iter(run), Role.ASSISTANT)


LONG = {
    "one long message": lambda n: [200008, *[1354] * n, 200007],
    "bytes that wait ever longer": lambda n: [200008, *[186978] * n, 200007],
    "characters that never end": lambda n: [200008, *[4103] * n, 200007],
    "an unknown id at the front": lambda n: [200008, 201089, *[1354] * n, 200007],
    "a header that ends late": lambda n: [*[1354] * n, 200008, 200007],
    "very short messages": lambda n: [200008, 200007, *[200006, 173781, 200008, 200007] * (n // 4)],
    "markers in content": lambda n: [200008, *[200008, 200006] * (n // 2), 200007],
}


def seconds_to_read(run, step):
    parser = StreamParser(Role.ASSISTANT)
    start = time.process_time()
    # A header of many words is an error, and costs what its message costs.
    with contextlib.suppress(HeaderError):
        for first in range(0, len(run), step):
            parser.feed(run[first : first + step])
    return time.process_time() - start


@pytest.mark.parametrize("step", [10**9, 10], ids=["at once", "ten at a time"])
@pytest.mark.parametrize("of_length", LONG.values(), ids=LONG)
def test_time_is_linear_in_the_length_of(of_length, step):
    # Quadratic would be sixteen times as long, and seconds; the constant and two further tries forgive a busy machine.
    assert any(
        seconds_to_read(of_length(160_000), step) < 9 * seconds_to_read(of_length(40_000), step) + 0.5 for _ in range(3)
    )
