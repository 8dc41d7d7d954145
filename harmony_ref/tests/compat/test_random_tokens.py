"""Random completions through both parsers, every attribute compared after every token; random texts through `encode`.

HARMONY_ORACLE_EXAMPLES sets the number of examples per property.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_ref import tokens

EXAMPLES = int(os.environ.get("HARMONY_ORACLE_EXAMPLES", "400"))
examples = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 1000,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

FRAMES = [200006, 200007, 200008, 200008, 200005, 200003, 200002, 200012]
OTHER_SPECIALS = [199998, 199999, 200013, 200018, 201088]
BROKEN = [78747, 115963, 151279, 186978, 4103, 104, 254, 132990, 9552]
NO_TOKENS = [201089, 2**32 - 1]
HEADS = [
    "assistant",
    "user",
    "<|channel|>final",
    "<|channel|>analysis",
    "<|channel|>commentary to=functions.f <|constrain|>json",
    "assistant to=functions.f<|channel|>commentary json",
    "functions.f to=assistant<|channel|>commentary",
    "hi there",
]
BODIES = ["Hi there", '{"a": 1}', "한글 🫠", "two\n\nlines", "<|channel|>final"]


def special(text):
    return tokens.encode_with_special_tokens(text)


known = st.one_of(
    st.sampled_from(FRAMES),
    st.sampled_from(FRAMES + OTHER_SPECIALS + BROKEN),
    st.integers(0, 201_088),
)
heads = st.sampled_from(HEADS).map(special)
bodies = st.sampled_from(BODIES).map(tokens.encode) | st.lists(st.sampled_from(BROKEN) | known, max_size=4)
messages = st.builds(
    lambda start, head, body, stop: [*start, *head, 200008, *body, *stop],
    st.sampled_from([[], [200006], [200006]]),
    heads,
    bodies,
    st.sampled_from([[200007], [200007], [200012], [200002], []]),
)
strays = st.lists(known, max_size=3) | st.sampled_from([[token] for token in NO_TOKENS])
completions = st.lists(messages | messages | messages | strays, max_size=4).map(
    lambda runs: [t for run in runs for t in run]
)
roles = st.sampled_from([None, "ASSISTANT", "ASSISTANT", "USER", "TOOL"])

ATTRIBUTES = [
    "state",
    "state_data",
    "current_role",
    "current_channel",
    "current_recipient",
    "current_content_type",
    "current_content",
    "last_content_delta",
    "messages",
    "tokens",
]
"""All that can be read from a parser."""


def seen(parser):
    return {name: repr(getattr(parser, name)) for name in ATTRIBUTES}


def trace(api, completion, role, strict):
    """Every attribute at the start, after each token and after the end, or the error that the step raised as well."""
    parser = api.StreamableParser(api.encoding, None if role is None else api.Role[role], strict=strict)
    yield seen(parser)
    for token in [*completion, None, None]:
        told = api.answer(
            lambda _, token=token: (parser.process_eos() if token is None else parser.process(token)) is parser
        )
        yield told, seen(parser)


@examples
@given(completion=completions, role=roles, strict=st.booleans())
def test_the_parsers_agree_in_every_attribute_after_every_token(official, ours, completion, role, strict):
    expected = trace(official, completion, role, strict)
    actual = trace(ours, completion, role, strict)
    for step, pair in enumerate(zip(expected, actual, strict=True)):
        assert pair[0] == pair[1], f"after {step} tokens"


@examples
@given(completion=completions, role=roles, strict=st.booleans())
def test_a_whole_completion_is_parsed_to_the_same_messages_or_error(official, ours, completion, role, strict):
    def way(api):
        known_role = None if role is None else api.Role[role]
        found = api.encoding.parse_messages_from_completion_tokens(completion, known_role, strict=strict)
        return [repr(found), [message.to_json() for message in found], [message.model_fields_set for message in found]]

    assert ours.answer(way) == official.answer(way)


SPECIALS = ["<|start|>", "<|end|>", "<|message|>", "<|reserved_200013|>", "<|endofprompt|>"]
words = st.sampled_from([*SPECIALS, "hello", " world", "<|", "|>", "é", "한", "\ud800", "\ud83d\ude00", "\n"])
written = st.lists(words | st.text(max_size=5), max_size=6).map("".join)
sets = st.lists(st.sampled_from([*SPECIALS, "<|nope|>", "hello"]), max_size=3)
allowed = st.one_of(st.none(), st.just("all"), sets.map(set), sets.map(frozenset), sets)
disallowed = st.one_of(st.none(), st.just("all"), st.just(()), sets.map(set), sets.map(frozenset), sets)


@examples
@given(text=written, allowed=allowed, disallowed=disallowed)
def test_texts_are_encoded_to_the_same_ids_or_refused_alike(official, ours, text, allowed, disallowed):
    options = {"allowed_special": allowed, "disallowed_special": disallowed}
    given_options = {name: value for name, value in options.items() if value is not None}
    way = lambda api: api.encoding.encode(text, **given_options)  # noqa: E731
    assert ours.answer(way) == official.answer(way)


@examples
@given(
    ids=st.lists(known | st.sampled_from(NO_TOKENS) | st.sampled_from(BROKEN), max_size=6),
    errors=st.sampled_from(["replace", "strict", "ignore"]),
)
def test_ids_are_decoded_to_the_same_text_or_refused_alike(official, ours, ids, errors):
    for way in (
        lambda api: api.encoding.decode(ids),
        lambda api: api.encoding.decode(ids, errors),
        lambda api: api.encoding.decode_utf8(ids),
        lambda api: [api.encoding.is_special_token(token) for token in ids],
    ):
        assert ours.answer(way) == official.answer(way)


class Index:
    def __index__(self):
        return 1428


ODD_IDS = {
    "a negative one": -1,
    "one of 33 bits": 2**32,
    "the largest of 63 bits": 2**63 - 1,
    "one of 64 bits": 2**63,
    "one of 65 bits": 2**64,
    "the smallest of 64 bits": -(2**63),
    "a negative one of 65 bits, just": -(2**63) - 1,
    "a negative one of 65 bits": -(2**64),
    "a float": 1.0,
    "a text": "1",
    "nothing": None,
    "a boolean": True,
    "an object that is an index": Index(),
}
TAKING_ONE = {
    "process": lambda api, token: api.StreamableParser(api.encoding, api.Role.USER).process(token).tokens,
    "is_special_token": lambda api, token: api.encoding.is_special_token(token),
    "decode": lambda api, token: api.encoding.decode([1428, token]),
    "decode_utf8": lambda api, token: api.encoding.decode_utf8([1428, token]),
    "parse": lambda api, token: repr(
        api.encoding.parse_messages_from_completion_tokens([200008, 1428, token], api.Role.USER)
    ),
    "a list of them": lambda api, token: api.encoding.decode(token),
}


@pytest.mark.parametrize("token", ODD_IDS.values(), ids=ODD_IDS)
@pytest.mark.parametrize("take", TAKING_ONE.values(), ids=TAKING_ONE)
def test_what_may_be_no_id_is_taken_or_refused_alike(official, ours, take, token):
    way = lambda api: take(api, token)  # noqa: E731
    assert ours.answer(way) == official.answer(way)


ODD_ARGUMENTS = {
    "a role that is a text": lambda api: api.StreamableParser(api.encoding, "assistant"),
    "a role of another enumeration": lambda api: api.StreamableParser(api.encoding, api.ReasoningEffort.LOW),
    "strict that is a number": lambda api: api.StreamableParser(api.encoding, None, strict=1),
    "strict given by position": lambda api: api.StreamableParser(api.encoding, None, False),
    "strict that is nothing": lambda api: repr(
        api.StreamableParser(api.encoding, api.Role.USER, strict=None).process(12194).process(200007).state_data
    ),
    "parsing, strict that is nothing and a header without an end": lambda api: (
        api.encoding.parse_messages_from_completion_tokens([12194, 200007], api.Role.USER, strict=None)
    ),
    "parsing, a role that is a text": lambda api: api.encoding.parse_messages_from_completion_tokens([], "user"),
    "parsing, another enumeration": lambda api: api.encoding.parse_messages_from_completion_tokens(
        [], api.StreamState.HEADER
    ),
    "parsing, strict that is nothing": lambda api: api.encoding.parse_messages_from_completion_tokens([], strict=None),
    "completion, a role that is a text": lambda api: api.encoding.render_conversation_for_completion(
        api.Conversation(), "assistant"
    ),
    "completion, another enumeration": lambda api: api.encoding.render_conversation_for_completion(
        api.Conversation(), api.StreamState.HEADER
    ),
    "a list for a conversation": lambda api: api.encoding.render_conversation([]),
    "a text for a message": lambda api: api.encoding.render("hi"),
    "a dict for a configuration": lambda api: api.encoding.render_conversation(api.Conversation(), {}),
    "a dict for options": lambda api: api.encoding.render(api.Message.from_role_and_content(api.Role.USER, ""), {}),
    "encode, a number": lambda api: api.encoding.encode(5),
    "encode, a number, nothing disallowed": lambda api: api.encoding.encode(5, disallowed_special=()),
    "encode, bytes": lambda api: api.encoding.encode(b"a"),
    "encode, bytes, nothing disallowed": lambda api: api.encoding.encode(b"a", disallowed_special=()),
    "encode, a number allowed": lambda api: api.encoding.encode("a", allowed_special={5}),
    "encode, a half allowed": lambda api: api.encoding.encode("a", allowed_special={"\ud800"}, disallowed_special=()),
    "encode, a number disallowed": lambda api: api.encoding.encode("a", disallowed_special={5}),
    "encode, disallowed that is a number": lambda api: api.encoding.encode("a", disallowed_special=5),
    "encode, a text allowed": lambda api: api.encoding.encode("<a>", allowed_special="a<", disallowed_special="b"),
    "encode, a text disallowed": lambda api: api.encoding.encode("<a>", disallowed_special="<"),
    "encode, a fixed list disallowed": lambda api: api.encoding.encode("<|end|>", disallowed_special=["<|end|>"]),
    "an unknown encoding": lambda api: api.load_harmony_encoding("gpt2"),
    "an encoding that is a number": lambda api: api.load_harmony_encoding(5),
    "an encoding that is nothing": lambda api: api.load_harmony_encoding(None),
    "an encoding's member name": lambda api: api.load_harmony_encoding("HARMONY_GPT_OSS"),
    "an unknown role": lambda api: api.Role("bad"),
    "an unknown effort": lambda api: api.ReasoningEffort("low"),
    "assigning a state": lambda api: setattr(api.StreamableParser(api.encoding, None), "state", 1),
    "assigning a name": lambda api: setattr(api.encoding, "name", "x"),
}


@pytest.mark.parametrize("way", ODD_ARGUMENTS.values(), ids=ODD_ARGUMENTS)
def test_odd_arguments_are_refused_alike(official, ours, way):
    assert ours.answer(way) == official.answer(way)
