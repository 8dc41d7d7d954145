import pytest

from harmony_ref import HarmonyError, InvalidUtf8Error, MessageError, UnknownTokenError, tokens

SPECIAL = {
    "<|startoftext|>": 199998,
    "<|endoftext|>": 199999,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
    "<|reserved_200018|>": 200018,
    "<|reserved_201088|>": 201088,
}


@pytest.mark.parametrize(("text", "token"), SPECIAL.items(), ids=SPECIAL)
def test_a_special_token_has_its_published_id(text, token):
    assert [token] == tokens.encode_with_special_tokens(text)
    assert text == tokens.decode([token])
    assert tokens.is_special(token)


def test_there_are_1091_special_tokens_in_one_row():
    assert list(tokens.SPECIAL_TOKENS.values()) == list(range(199998, 201089))


@pytest.mark.parametrize("text", [*SPECIAL, "<|endofprompt|>", "<|refusal|>"])
def test_typed_markers_are_ordinary_text(text):
    assert not any(map(tokens.is_special, tokens.encode(text)))
    assert text == tokens.decode(tokens.encode(text))


def test_endofprompt_is_not_a_token_of_these_models():
    assert len(tokens.encode_with_special_tokens("<|endofprompt|>")) > 1


def test_only_the_allowed_special_tokens_are_special():
    assert [200006, *tokens.encode("<|end|>")] == tokens.encode_with_special_tokens(
        "<|start|><|end|>", allowed={"<|start|>"}
    )


@pytest.mark.parametrize(
    "token",
    [201089, 2**32 - 1, 2**32, 2**64, 10**100, -1, -(2**31), -(10**100)],
    ids=[
        "one too many",
        "32 bits",
        "beyond 32 bits",
        "beyond 64 bits",
        "huge",
        "negative",
        "31 bits below",
        "far below",
    ],
)
@pytest.mark.parametrize("decode", [tokens.decode, tokens.decode_bytes, tokens.decode_utf8])
def test_an_unknown_id_is_named_in_the_error(decode, token):
    with pytest.raises(UnknownTokenError, match=f"Invalid token for decoding: {token}$") as caught:
        decode([1, token])
    assert token == caught.value.token
    assert isinstance(caught.value, HarmonyError)


class Integral:
    """An integer of another library, numpy's for one."""

    def __index__(self):
        return 64


@pytest.mark.parametrize("run", [[64], (64,), range(64, 65), [Integral()], b"@"], ids=lambda run: type(run).__name__)
@pytest.mark.parametrize("decode", [tokens.decode, tokens.decode_utf8, lambda run: tokens.decode_bytes(run).decode()])
def test_every_sequence_of_integers_is_decoded(decode, run):
    assert decode(run) == "a"


def test_a_bool_is_the_integer_that_it_is_in_python():
    assert tokens.decode([True]) == tokens.decode([1])


NO_TOKENS = {
    "nothing": None,
    "an id": 5,
    "text": "ab",
    "a set": {64},
    "a dict": {64: 64},
    "an iterator": iter([64]),
    "a list of nothing": [None],
    "a list of text": ["a"],
    "a list of lists": [[64]],
    "a list of floats": [1.0],
    "a list with no number": [float("nan")],
    "an unknown id before a float": [201089, 1.5],
    "a float before an unknown id": [1.5, 201089],
}


@pytest.mark.parametrize(
    "run",
    NO_TOKENS.values(),
    ids=NO_TOKENS,
)
@pytest.mark.parametrize("decode", [tokens.decode, tokens.decode_bytes, tokens.decode_utf8])
def test_what_is_no_sequence_of_integers_is_a_type_error(decode, run):
    with pytest.raises(TypeError):
        decode(run)


@pytest.mark.parametrize(
    ("run", "start", "length", "text"),
    [
        ([64, 4103], 1, None, "incomplete utf-8 byte sequence from index 1"),
        ([78747], 0, 1, "invalid utf-8 sequence of 1 bytes from index 0"),
    ],
    ids=["a character that stops early", "a byte that begins none"],
)
def test_bytes_that_are_not_text_are_located(run, start, length, text):
    with pytest.raises(InvalidUtf8Error) as caught:
        tokens.decode_utf8(run)
    assert (start, length) == (caught.value.start, caught.value.length)
    assert f"Could not decode tokens: Invalid utf-8 sequence: {text}" == str(caught.value)


def test_invalid_bytes_are_replaced_where_text_is_all_that_is_wanted():
    assert tokens.decode([78747]) == "\ufffdpp"


def test_lone_surrogates_become_replacement_characters():
    assert tokens.encode("a\ud83d") == tokens.encode("a\ufffd")


SURROGATES = {
    "at the end": ("a\ud83d", "unexpected end of hex escape"),
    "before ASCII": ("\ud83dx", "unexpected end of hex escape"),
    "before a line break": ("\ud83d\n", "unexpected end of hex escape"),
    "before what JSON escapes": ("\ud83dé", "lone leading surrogate in hex escape"),
    "before another": ("\ud83d\ud83d", "lone leading surrogate in hex escape"),
    "that is a second half": ("a\ude00b", "lone leading surrogate in hex escape"),
}


@pytest.mark.parametrize(("text", "problem"), SURROGATES.values(), ids=SURROGATES)
def test_text_that_json_cannot_carry_is_refused_for_a_surrogate(text, problem):
    with pytest.raises(MessageError) as caught:
        tokens.encode_text(text)
    assert problem == caught.value.problem


def test_two_surrogates_that_make_a_pair_are_their_character():
    assert tokens.encode("😀") == tokens.encode_text("\ud83d\ude00")
