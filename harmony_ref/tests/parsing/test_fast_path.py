"""The short way through a whole completion answers as the state machine, or not at all."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_ref import ParseError, Role, StreamParser, encode, encode_with_special_tokens
from harmony_ref.parsing.fast_path import read_well_framed

BROKEN_BYTE = [4103]
UNKNOWN = [201089]


def marked(text):
    return encode_with_special_tokens(text)


READ = {
    "one message": marked("<|channel|>final<|message|>hi<|return|>"),
    "two messages": marked("<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>"),
    "a call": marked("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"),
    "an empty message": marked("<|message|><|end|>"),
    "a message that was cut off": marked("<|message|>half"),
    "a message that was cut off before its text": marked("<|message|>a<|end|><|start|>user<|message|>"),
    "markers that are text inside content": marked(
        "<|message|>a<|channel|>b<|message|>c<|constrain|>d<|endoftext|><|end|>"
    ),
    "ids that are halves of surrogate pairs as characters": [*marked("<|message|>"), 55296, 57343, *marked("<|end|>")],
    "the id that a byte order mark has as a character": [*marked("<|message|>"), 65279, *marked("<|end|>")],
}
LEFT = {
    "a marker typed in ordinary tokens": [*marked("<|message|>"), *encode("a<|end|>b"), *marked("<|end|>")],
    "a stop token typed at the very end": [*marked("<|message|>a"), *encode("<|end|>")],
    "a start typed in content": [*marked("<|message|>a"), *encode("<|start|>b"), *marked("<|end|>")],
    "a start inside content": marked("<|message|>a<|start|>b<|end|>"),
    "a header that swallows a message": marked("final hi<|end|><|start|>assistant<|message|>ok<|end|>"),
    "a header that has a stop token": marked("final hi<|end|>x<|message|>ok<|end|>"),
    "two stop tokens": marked("<|message|>a<|end|><|return|>"),
    "text between messages": marked("<|message|>a<|end|>\n<|start|>user<|message|>b<|end|>"),
    "text after the last message": marked("<|message|>a<|end|>b"),
    "a header without its end": marked("<|message|>a<|end|><|start|>user"),
    "an unreadable header": marked("a b c<|message|>a<|end|>"),
    "nothing": [],
    "broken bytes": [*marked("<|message|>a"), *BROKEN_BYTE, *marked("<|end|>")],
    "an unknown id": [*marked("<|message|>a"), *UNKNOWN, *marked("<|end|>")],
    "an id that is no character": [*marked("<|message|>a"), 0x110000, *marked("<|end|>")],
    "a negative id": [*marked("<|message|>a"), -1, *marked("<|end|>")],
    "a reserved token": [*marked("<|message|>a"), 200013, *marked("<|end|>")],
}


def by_the_machine(run, role):
    parser = StreamParser(role)
    parser.feed(run)
    parser.finish()
    return list(parser.messages)


@pytest.mark.parametrize("run", READ.values(), ids=READ)
def test_it_reads(run):
    for role, completion in ((Role.ASSISTANT, run), (None, [*marked("<|start|>assistant"), *run])):
        messages = read_well_framed(completion, role)
        assert messages is not None
        assert by_the_machine(completion, role) == messages


@pytest.mark.parametrize("run", LEFT.values(), ids=LEFT)
def test_it_leaves_to_the_machine(run):
    assert read_well_framed(run, Role.ASSISTANT) is None


def test_without_a_role_nothing_is_no_message():
    assert read_well_framed([], None) == []


def test_without_a_role_it_leaves_what_does_not_begin_with_a_start():
    assert read_well_framed(READ["one message"], None) is None


pieces = st.sampled_from(
    [
        *(marked(text) for text in ("<|start|>", "<|start|>assistant", "<|start|>user", "<|channel|>final", " to=f")),
        *(marked(text) for text in ("<|message|>", "<|message|>", "<|end|>", "<|end|>", "<|call|>", "<|return|>")),
        *(encode(text) for text in ("hi", "<", "|", "<|", "<|end|>", "<|start|>", "한", "\n")),
        BROKEN_BYTE,
        UNKNOWN,
        [55300],
        [200013],
    ]
)


@settings(max_examples=2000, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    run=st.lists(pieces, max_size=12).map(lambda parts: [token for part in parts for token in part]),
    role=st.sampled_from([None, Role.ASSISTANT]),
)
def test_what_it_reads_the_machine_reads_alike(run, role):
    messages = read_well_framed(run, role)
    if messages is None:
        return
    try:
        assert by_the_machine(run, role) == messages
    except ParseError as error:
        pytest.fail(f"the machine refuses this: {error}")
