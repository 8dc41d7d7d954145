"""Long pieces: bare tiktoken says what is right wherever it answers."""

import subprocess
import sys
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_ref import HarmonyError, Message, Role, parse, render_conversation, text_of, tokens
from harmony_ref.tokenizer import long_pieces
from harmony_ref.tokenizer.long_pieces import BLANKS, LONGEST_PIECE, encode_in_pieces
from harmony_ref.tokenizer.tiktoken_failures import EncodingError, raise_encoding_error

TIKTOKEN_ANSWERS_TO = 999_998

KINDS = {
    "blanks": " ",
    "tabs": "\t",
    "ideographic spaces": "\u3000",
    "no-break spaces": "\xa0",
    "line separators": "\u2028",
    "next lines": "\x85",
    "form feeds": "\x0c",
    "tabs and blanks": "\t  ",
    "four kinds": " \xa0\u3000\t",
    "en spaces and blanks": "\u2002 ",
}
BEFORE = {"nothing": "", "a letter": "a", "a line break": "\n", "a mark and line breaks": "-\r\n\n", "a digit": "7"}
AFTER = {
    "the end": "",
    "a letter": "a",
    "a mark": "-x",
    "a digit": "7",
    "a line break": "\n",
    "a line break and a letter": "\r\na",
    "an accent": "\u0301",
    "a file separator": "\x1c",
    "a short run after a letter": "a  b",
}


def run_of(kind, length):
    return (kind * (length // len(kind) + 1))[:length]


def rows():
    """Every kind with every neighbour at one length after the other around the border; a few kinds at great lengths."""
    borders = cycle(range(LONGEST_PIECE - 10, LONGEST_PIECE + 11))
    before, after = cycle(BEFORE), cycle(AFTER)
    for kind in KINDS:
        for _ in AFTER:
            yield kind, next(borders), next(before), next(after)
    for length in (400_000, TIKTOKEN_ANSWERS_TO):
        for kind in ("blanks", "tabs and blanks"):
            yield kind, length, next(before), next(after)


def bare(text):
    return tokens.encoding().encode_ordinary(text)


@pytest.mark.parametrize(
    ("kind", "length", "before", "after"),
    [pytest.param(*row, id="{1} {0} between {2} and {3}".format(*row)) for row in rows()],
)
def test_the_ids_are_those_of_tiktoken_for(kind, length, before, after):
    text = BEFORE[before] + run_of(KINDS[kind], length) + AFTER[after]
    assert bare(text) == tokens.encode(text)


PIECES = [
    *BLANKS,
    *"\n\r\n\r",
    *(" " * 10),
    "  \t",
    "a",
    "Z",
    "'s",
    "7",
    "-",
    "/",
    "é",
    "\u0301",
    "\x1c",
    "한",
    "\ud83d",
    "<|end|>",
    "<|start|>",
    "<|x|>",
]
spaced_texts = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)


@settings(max_examples=600, derandomize=True, deadline=None, database=None)
@given(text=spaced_texts, longest=st.integers(2, 7), allowed=st.sampled_from(["all", frozenset(), {"<|end|>"}]))
@pytest.mark.slow
def test_no_text_has_other_ids_where_shorter_runs_are_cut(text, longest, allowed):
    ordinary = bare(text)
    marked = tokens.encoding().encode(text, allowed_special=allowed, disallowed_special=())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "LONGEST_PIECE", longest)
        assert ordinary == tokens.encode(text)
        assert marked == tokens.encode_with_special_tokens(text, allowed=allowed)
        if "\ud83d" not in text:
            assert ordinary == tokens.encode_text(text)


REFUSED = [
    *((kind, TIKTOKEN_ANSWERS_TO + 1, "nothing", after) for after, kind in zip(AFTER, cycle(("blanks", "four kinds")))),
    *((kind, 1_000_000, "a mark and line breaks", "a letter") for kind in ("tabs", "ideographic spaces")),
    ("blanks", 2_500_000, "a letter", "the end"),
]


@pytest.mark.parametrize(
    ("kind", "length", "before", "after"),
    [pytest.param(*row, id="{1} {0} between {2} and {3}".format(*row)) for row in REFUSED],
)
def test_white_space_that_tiktoken_refuses_is_encoded_and_comes_back_for(kind, length, before, after):
    text = BEFORE[before] + run_of(KINDS[kind], length) + AFTER[after]
    assert text == tokens.decode(tokens.encode(text))


@pytest.mark.slow
def test_a_million_blanks_are_the_ids_of_two_halves_that_end_between_the_longest_tokens():
    # The longest token is 128 blanks; tiktoken makes a run of it from the left.
    assert bare(" " * 500_096) + bare(" " * 499_904) == tokens.encode(" " * 1_000_000)


@pytest.mark.slow
def test_two_runs_between_line_breaks_are_encoded_apart():
    run = " " * 1_000_000
    assert tokens.encode(f"{run}x\n{run}") == [*tokens.encode(run[1:]), *bare(" x"), *bare("\n"), *tokens.encode(run)]


@pytest.mark.parametrize(
    "encode",
    [
        tokens.encode,
        tokens.encode_text,
        tokens.encode_with_special_tokens,
        lambda text: render_conversation([Message(author=Role.USER, content=text)]),
    ],
    ids=["encode", "encode_text", "encode_with_special_tokens", "render_conversation"],
)
def test_what_tiktoken_gives_up_becomes_an_error_of_this_package_in(encode, monkeypatch):
    monkeypatch.setattr(tokens, "LONGEST_PIECE", 10**9)
    with pytest.raises(EncodingError, match="tiktoken cannot encode or decode this: ") as caught:
        encode(" " * 1_000_000)
    assert isinstance(caught.value, HarmonyError)
    assert "stack" in caught.value.reason.lower()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), MemoryError(), ValueError()], ids=repr)
def test_what_is_not_tiktokens_doing_passes(error):
    raise_encoding_error(error)


def test_a_message_of_a_million_blanks_is_rendered_and_parsed():
    rendered = render_conversation([Message(author=Role.USER, content=" " * 1_000_001 + "x")])
    assert [text_of(message) for message in parse(rendered)] == [" " * 1_000_001 + "x"]


LONG = {
    "letters": "a",
    "capitals": "A",
    "digits": "1",
    "dashes": "-",
    "accents": "\u0301",
    "line breaks": "\n",
    "blanks and line breaks": " \n",
    "Chinese": "\u4e00",
    "zero width spaces": "\u200b",
    "control text": "<|start|>",
    "apostrophes": "'s",
    "emoji": "\U0001fae0",
}


@pytest.mark.parametrize("unit", LONG.values(), ids=LONG)
def test_a_megabyte_without_a_break_is_encoded_and_comes_back(unit):
    text = run_of(unit, 1_000_000 // len(unit.encode()))
    assert text == tokens.decode(tokens.encode(text))


CHARACTERS = [
    *"abzABZ019 \t\n\r/-'!",
    *"éÀªǅʰ한中あ、。Ⅷ²٣",
    *"\u0300\u0903\u3000\x1c\x7f\x00\u017f\u212a",
    *"\u0295\ua7ce\U00016ebb\U00011de0\U00032000",  # their class differs between versions of Unicode
    *"😀\ud83d\ude00",
    *("'s", "'\u017f", "'RE", "<|end|>"),
]
hostile_texts = st.lists(
    st.tuples(st.lists(st.sampled_from(CHARACTERS), min_size=1, max_size=3), st.integers(1, 150)), max_size=8
).map(lambda runs: "".join("".join(unit) * count for unit, count in runs))


@settings(max_examples=600, derandomize=True, deadline=None, database=None)
@given(text=hostile_texts, longest=st.sampled_from([2, 3, 5, 20, 100]), part=st.sampled_from([40, 100, 300]))
def test_long_pieces_have_the_ids_of_tiktoken_for(text, longest, part):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_pieces, "_PARTS", (part, 10 * part, 10**6))
        assert bare(text) == encode_in_pieces(text, bare, longest=longest)


@pytest.mark.parametrize(
    "unit", ["a", "A", "Aa", "ab", "中", "aé한", "-", "-=", "\u0300", "\n", "/\n", "😀", "ʕ", "꟎", "x" * 99 + "é"]
)
def test_a_run_of_two_hundred_thousand_characters_has_the_ids_of_tiktoken(unit):
    text = "word \t" + run_of(unit, 200_000) + "'s 12345 and\nmore"
    assert bare(text) == tokens.encode(text)
    assert bare(text) == tokens.encode_with_special_tokens(text)


def test_special_tokens_around_long_runs_are_special():
    run = "a" * 200_000
    assert tokens.encode_with_special_tokens(f"<|start|>{run}<|end|><|x|>{run}", allowed={"<|end|>"}) == [
        *tokens.encode(f"<|start|>{run}"),
        tokens.END,
        *tokens.encode(f"<|x|>{run}"),
    ]


_IN_LITTLE_MEMORY = """
import resource, sys
from harmony_ref import tokens
tokens.encode("a" * 200_000)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 100_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(len(tokens.encode("a" * 5_000_000)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_five_million_letters_need_less_than_100_megabytes():
    answer = subprocess.run([sys.executable, "-c", _IN_LITTLE_MEMORY], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "625000\n"), answer.stderr


def test_a_text_beyond_the_limit_is_refused_with_its_length(monkeypatch):
    monkeypatch.setattr(long_pieces, "LONGEST_TEXT", 150_000)
    with pytest.raises(EncodingError, match=r"^invalid text: expected at most 150000 characters, got 150001$"):
        tokens.encode("a" * 150_001)


def test_a_run_whose_joins_have_no_proof_is_refused_with_its_length(monkeypatch):
    monkeypatch.setattr(long_pieces, "_PARTS", (10, 20))  # fewer ids than are encoded again
    with pytest.raises(
        EncodingError, match=r"^invalid run: expected ids that depend on at most 20 characters, got 200000$"
    ):
        tokens.encode("a" * 200_000)
