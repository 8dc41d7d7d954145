"""The oracle for tokens: this package and openai-harmony 0.0.8 read the same random tokens in the same way.

HARMONY_ORACLE_EXAMPLES sets the number of examples per property.
"""

import json
import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_ref import HarmonyError, ParseError, Role, StreamParser, parse, tokens

WORDS = [
    "a",
    "hi",
    "json",
    "all",
    "code",
    "functions.f",
    "to=",
    "to=functions.f",
    "to=b",
    "user",
    "assistant",
    "system",
    "developer",
    "tool",
    "User",
    "user:bob",
    "assistantassistant",
    "analysis",
    "commentary",
    "final",
    "Final",
    "browser.search",
    "123456",
    "null",
    "é",
    "한글",
    "🫠",
    "'q",
    '"q"',
    "\\",
    "<",
    ">",
    "",
    " ",
    "  ",
    "hi there",
    "x y z",
    "\n",
    "\t",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\xa0",
    "\u3000",
    "\u2028",
    "e\u0301",
    "\u200d",
    "\u200b",
    "\x00",
    "\x01",
    "'s",
]
MARKERS = [
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|constrain|>json",
    "<|constrain|> json",
    "<|channel|>final",
    "<|reserved_200013|>",
    "<|endofprompt|>",
    "<|refusal|>",
]

texts = st.lists(st.sampled_from(WORDS + MARKERS) | st.text(max_size=8), max_size=5).map("".join)
START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL = 200006, 200007, 200008, 200005, 200003, 200002, 200012
BROKEN = [78747, 115963, 151279, 186978, 4103, 104, 254, 132990, 9552, 177, 130, 222]
UNKNOWN = [201089, 2**32 - 1]


def token_runs(encode):
    """Lists of ids: framed like messages, but for what may be wrong in each place."""
    words = [encode(word) for word in WORDS if word]
    written_markers = [encode(marker) for marker in MARKERS]
    specials = [[token] for token in (START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL, 199999, 200013, 201088)]
    good_headers = [
        encode("assistant"),
        encode("user"),
        [CHANNEL, *encode("final")],
        [CHANNEL, *encode("analysis")],
        encode(" to=functions.f"),
        [*encode(" "), CONSTRAIN, *encode("json")],
        encode(" json"),
        encode("functions.f to=assistant"),
    ]
    anything = st.one_of(
        st.sampled_from(words),
        st.sampled_from(words),
        st.sampled_from(specials),
        st.sampled_from(written_markers),
        st.sampled_from(BROKEN).map(lambda token: [token]),
        st.integers(0, 201_088).map(lambda token: [token]),
        texts.map(encode),
    )
    rarely_unknown = st.integers(0, 99).flatmap(
        lambda number: st.sampled_from(UNKNOWN).map(lambda token: [token]) if number == 0 else anything
    )
    header = st.lists(st.sampled_from(good_headers) | st.sampled_from(good_headers) | rarely_unknown, max_size=5)
    body = st.lists(rarely_unknown | st.sampled_from(BROKEN).map(lambda token: [token]), max_size=6)
    stop = st.sampled_from([END, END, RETURN, CALL])

    framed = st.builds(
        lambda opening, head, content, last: [*opening, *joined(head), MESSAGE, *joined(content), last],
        st.sampled_from([[START], [START], [START], []]),
        header,
        body,
        stop,
    )
    headless = st.builds(lambda head, last: [*joined(head), last], header, stop)
    return st.lists(framed | framed | framed | headless | rarely_unknown, max_size=5).map(joined)


EXAMPLES = int(os.environ.get("HARMONY_ORACLE_EXAMPLES", "400"))
examples = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 1000,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
completions = st.deferred(lambda: token_runs(tokens.encode))
roles_given = st.none() | st.sampled_from([role.value for role in Role]) | st.just("assistant")


def framed_well(encode, role):
    """Messages without a fault in their framing, and then perhaps one token dropped, doubled or put in."""
    anything = st.sampled_from(WORDS).map(encode) | st.integers(0, 201_088).map(lambda token: [token])
    bodies = st.lists(anything | st.sampled_from(BROKEN).map(lambda token: [token]), max_size=8).map(joined)
    bodies = bodies.map(lambda body: [token for token in body if token not in tokens.STOP_TOKENS])
    channel = st.sampled_from([[], [CHANNEL, *encode("analysis")], [CHANNEL, *encode("commentary")]])
    recipient = st.sampled_from([[], encode(" to=functions.f"), encode(" to="), encode(" to=한글")])
    kind = st.sampled_from([[], [*encode(" "), CONSTRAIN, *encode("json")], encode(" code")])
    speaker = st.sampled_from([encode("assistant"), encode("user"), encode("functions.f to=assistant")])
    end = st.sampled_from([END, END, RETURN, CALL])
    message = st.builds(
        lambda who, *parts: [START, *who, *joined(parts[:-2]), MESSAGE, *parts[-2], parts[-1]],
        speaker,
        channel,
        recipient,
        kind,
        bodies,
        end,
    )
    rest = st.lists(message, max_size=3).map(joined)
    if role is None:
        return rest
    return st.builds(
        lambda where, whom, what, body, stop, others: [*where, *whom, *what, MESSAGE, *body, stop, *others],
        channel,
        recipient,
        kind,
        bodies,
        end,
        rest,
    )


def joined(parts):
    return [token for part in parts for token in part]


@st.composite
def requests(draw):
    """A completion and the role it is to be parsed with."""
    role = draw(roles_given)
    if draw(st.integers(0, 3)) == 0:
        return draw(completions), role
    run = draw(framed_well(tokens.encode, role))
    if run and draw(st.booleans()):
        place = draw(st.integers(0, len(run) - 1))
        stray = st.sampled_from([START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL, *BROKEN, *UNKNOWN, 198])
        instead = draw(st.sampled_from([[], run[place : place + 1] * 2]) | stray.map(lambda token: [token]))
        run = [*run[:place], *instead, *run[place + 1 :]]
    return run, role


def ours(function, *arguments):
    """Our answer in the oracle's form."""
    try:
        return {"ok": function(*arguments)}
    except HarmonyError as error:
        return {"err": ["HarmonyError", str(error)]}


def role_or_none(word):
    return None if word is None else Role(word)


@examples
@given(given_run=requests(), strict=st.booleans())
def test_a_completion_is_parsed_equally(oracle, given_run, strict):
    completion, role = given_run

    def parsed():
        return [message.to_dict() for message in parse(completion, role_or_none(role), strict=strict)]

    assert oracle.parse(completion, role, strict) == ours(parsed)


def trace_of_library(parser, completion):
    for step in [*completion, None, None]:
        error = None
        try:
            parser.process_eos() if step is None else parser.process(step)
        except Exception as caught:  # noqa: BLE001 - whatever it raises is the answer
            error = str(caught)
        yield {
            "token": step,
            "error": error,
            "state": json.loads(parser.state),
            "role": parser.current_role,
            "channel": parser.current_channel,
            "recipient": parser.current_recipient,
            "content_type": parser.current_content_type,
            "content": parser.current_content,
            "delta": parser.last_content_delta,
            "messages": json.loads(parser.messages),
            "tokens": parser.tokens,
        }


def trace_of_ours(parser, completion):
    for step in [*completion, None, None]:
        error = None
        try:
            parser.finish() if step is None else parser.process(step)
        except ParseError as caught:
            error = str(caught)
        yield {
            "token": step,
            "error": error,
            "state": parser.state_data,
            "role": parser.current_role,
            "channel": parser.current_channel,
            "recipient": parser.current_recipient,
            "content_type": parser.current_content_type,
            "content": parser.current_content,
            "delta": parser.last_content_delta,
            "messages": [message.to_dict() for message in parser.messages],
            "tokens": list(parser.tokens),
        }


@examples
@given(given_run=requests(), strict=st.booleans())
def test_every_attribute_is_equal_after_every_token(oracle, given_run, strict):
    completion, role = given_run
    expected = trace_of_library(oracle.parser(role, strict), completion)
    actual = trace_of_ours(StreamParser(role_or_none(role), strict=strict), completion)
    for theirs, mine in zip(expected, actual, strict=True):
        assert theirs == mine


@examples
@given(text=texts | st.text())
def test_text_is_encoded_equally(oracle, text):
    assert oracle.inner.encode(text, []) == tokens.encode(text)
    assert oracle.inner.encode(text, list(tokens.SPECIAL_TOKENS)) == tokens.encode_with_special_tokens(text)


@examples
@given(run=completions)
def test_tokens_are_decoded_equally(oracle, run):
    assert oracle.answer(oracle.inner.decode_utf8, run) == ours(tokens.decode_utf8, run)
    assert oracle.answer(lambda: bytes(oracle.inner.decode_bytes(run))) == ours(tokens.decode_bytes, run)


def test_special_tokens_and_stop_tokens_are_equal(oracle):
    inner = oracle.inner
    assert set(inner.special_tokens()) == set(tokens.SPECIAL_TOKENS)
    assert set(inner.stop_tokens()) == tokens.STOP_TOKENS
    assert set(inner.stop_tokens_for_assistant_actions()) == tokens.STOP_TOKENS_FOR_ASSISTANT_ACTIONS
    for text, token in tokens.SPECIAL_TOKENS.items():
        assert text == inner.decode_utf8([token])
