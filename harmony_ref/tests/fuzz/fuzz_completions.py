"""Random runs of tokens: completions with and without faults, headers of every make, text in pieces of bytes."""

from functools import cache

from fuzz_texts import MARKERS, WORDS, texts
from hypothesis import strategies as st

from harmony_ref import Role
from harmony_ref.tokenizer import vocabulary
from harmony_ref.tokenizer.tokens import encode, encode_with_special_tokens

START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL = 200006, 200007, 200008, 200005, 200003, 200002, 200012
STOPS = (END, RETURN, CALL)
BROKEN = [78747, 115963, 151279, 186978, 4103, 104, 254, 132990, 9552, 177, 130, 222]
"""Tokens that are no text by themselves."""
UNKNOWN = [201089, 2**32 - 1]
HEADER_ATOMS = [
    *("user", "assistant", "system", "developer", "tool", "functions.f", "assistant:bob", "Assistant", "한글"),
    *("to=", "to=functions.f", "to=all", "to =x", "json", "code", "analysis", "final", "commentary", "x", "<", ">"),
    *("<|channel|>", "<|channel|>final", "<|channel|>analysis", "<|constrain|>", "<|constrain|>json", "<|start|>"),
    *("<|end|>", "<|return|>", "<|call|>", "<|endoftext|>", "<|reserved_200013|>", '"', "\\", "'", "\x00", "\x7f"),
    *(
        " ",
        " ",
        " ",
        "  ",
        "\t",
        "\n",
        "\r",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2028",
        "\u3000",
        "\u200b",
        "e\u0301",
    ),
]
ROLES = [role.value for role in Role]


def joined(parts):
    return [token for part in parts for token in part]


def one(token):
    return [token]


def encoded(texts_to_encode):
    return st.sampled_from(texts_to_encode).map(encode)


stops = st.sampled_from([END, END, RETURN, CALL])
broken = st.sampled_from(BROKEN).map(one)
specials = st.sampled_from([START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL, 199999, 200013, 201088]).map(one)
any_token = st.integers(0, 201_088).map(one)
roles_given = st.none() | st.sampled_from(ROLES) | st.just("assistant")

pieces = st.one_of(encoded(WORDS), encoded(WORDS), specials, encoded(MARKERS), broken, any_token, texts.map(encode))
pieces_seldom_unknown = st.integers(0, 99).flatmap(
    lambda number: st.sampled_from(UNKNOWN).map(one) if number == 0 else pieces
)
good_headers = st.sampled_from(
    [
        "assistant",
        "user",
        "<|channel|>final",
        "<|channel|>analysis",
        " to=functions.f",
        " <|constrain|>json",
        " json",
        "functions.f to=assistant",
    ]
).map(encode_with_special_tokens)


@cache
def completions():
    """Messages with what may be wrong in each place."""
    header = st.lists(good_headers | good_headers | pieces_seldom_unknown, max_size=5).map(joined)
    body = st.lists(pieces_seldom_unknown | broken, max_size=6).map(joined)
    framed = st.builds(
        lambda opening, head, content, stop: [*opening, *head, MESSAGE, *content, stop],
        st.sampled_from([[START], [START], [START], []]),
        header,
        body,
        stops,
    )
    headless = st.builds(lambda head, stop: [*head, stop], header, stops)
    return st.lists(framed | framed | framed | headless | pieces_seldom_unknown, max_size=5).map(joined)


channels = st.sampled_from(["", "<|channel|>analysis", "<|channel|>commentary"]).map(encode_with_special_tokens)
recipients = encoded(["", " to=functions.f", " to=", " to=한글"])
content_types = st.sampled_from(["", " <|constrain|>json", " code"]).map(encode_with_special_tokens)
speakers = encoded(["assistant", "user", "functions.f to=assistant"])
bodies = st.lists(encoded(WORDS) | any_token | broken, max_size=8).map(
    lambda parts: [token for token in joined(parts) if token not in STOPS]
)
messages_without_a_speaker = st.builds(
    lambda where, whom, what, body, stop: [*where, *whom, *what, MESSAGE, *body, stop],
    channels,
    recipients,
    content_types,
    bodies,
    stops,
)
whole_messages = st.builds(lambda who, rest: [START, *who, *rest], speakers, messages_without_a_speaker)


@st.composite
def requests(draw):
    """A completion and the role it is to be read with; often with exactly one fault in its framing."""
    role = draw(roles_given)
    if draw(st.integers(0, 3)) == 0:
        return draw(completions()), role
    run = joined(draw(st.lists(whole_messages, max_size=3)))
    if role is not None:
        run = draw(messages_without_a_speaker) + run
    if run and draw(st.booleans()):
        place = draw(st.integers(0, len(run) - 1))
        stray = st.sampled_from([START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL, *BROKEN, *UNKNOWN, 198])
        instead = draw(st.sampled_from([[], run[place : place + 1] * 2]) | stray.map(one))
        run = [*run[:place], *instead, *run[place + 1 :]]
    return run, role


@st.composite
def headers(draw):
    """A message with a random header, and the role it is to be read with; markers are special tokens or typed."""
    role = draw(st.none() | st.just("assistant") | st.sampled_from(ROLES))
    atoms = draw(st.lists(st.sampled_from(HEADER_ATOMS), max_size=8))
    if role is None and draw(st.booleans()):
        atoms = [draw(st.sampled_from(ROLES)), *atoms]
    if draw(st.integers(0, 3)) == 0:
        header = joined(draw(st.sampled_from([encode, encode_with_special_tokens]))(atom) for atom in atoms)
    else:
        header = encode_with_special_tokens("".join(atoms))
    if draw(st.integers(0, 19)) == 0:
        header += draw(broken)
    opening = [] if role is not None else [START]
    return [*opening, *header, MESSAGE, *encode("C"), END], role


@st.composite
def streams(draw):
    """A message whose text is cut between any two bytes, now and then damaged, and where feeding stops in between."""
    data = draw(texts | st.text(min_size=1)).encode("utf-8", "replace")
    if data and draw(st.integers(0, 2)) == 0:
        place = draw(st.integers(0, len(data) - 1))
        data = data[:place] + draw(st.binary(max_size=2)) + data[place + 1 :]
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=12).map(sorted))
    chunks = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    body = joined(tokens_of(chunk) for chunk in chunks)
    if draw(st.integers(0, 49)) == 0:
        body.insert(draw(st.integers(0, len(body))), draw(st.sampled_from(UNKNOWN)))
    ending = draw(st.sampled_from([[END], [RETURN], [CALL], []]))
    before = draw(whole_messages | st.just([]))
    return [*before, START, *encode("assistant"), CHANNEL, *encode("final"), MESSAGE, *body, *ending], None


def tokens_of(data):
    """The bytes as one token if there is one, else as a token per byte."""
    ranks = vocabulary.ranks()
    if not data:
        return []
    return [ranks[data]] if data in ranks else [ranks[bytes([byte])] for byte in data]


@st.composite
def splits(draw, requests_of):
    """A request, and the lengths of the runs in which it is fed."""
    run, role = draw(requests_of)
    return run, role, draw(st.lists(st.integers(1, 6) | st.integers(1, 40), max_size=len(run)))


ids_in_range = st.lists(st.integers(0, 201_092) | st.integers(0, 2**32 - 1) | st.sampled_from(BROKEN), max_size=6)
runs_to_decode = completions() | ids_in_range | streams().map(lambda request: request[0])
