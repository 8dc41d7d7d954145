import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.report.text_excerpt import StretchKind, contrast, cut, plain, visible

TEXTS = st.text(st.characters(codec=None), max_size=600)


def marked(parts):
    return "".join(f"<{piece.text}>" if piece.kind is StretchKind.DIFFERS else piece.text for piece in parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a\nb", "a\nb", id="a new line is one"),
        pytest.param("\0\x1b[1m\x7f", r"\x00\x1b[1m\x7f", id="control characters"),
        pytest.param("\u202eabc\u2066", r"\u202eabc\u2066", id="bidirectional controls"),
        pytest.param("\ud800", r"\ud800", id="a lone surrogate"),
        pytest.param("a\u202fb\u00a0c", r"a\u202fb\xa0c", id="blanks that look like a blank"),
        pytest.param("日本語 é 🙂", "日本語 é 🙂", id="text of any language"),
    ],
)
def test_what_can_not_be_seen_is_spelled_out(text, expected):
    assert visible(text, keep="\n") == expected


@given(TEXTS)
def test_a_visible_text_can_be_written_anywhere(text):
    shown = visible(text)
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert all(char == "\n" or char.isprintable() for char in shown)


@pytest.mark.parametrize(
    ("expected", "actual", "left", "right"),
    [
        pytest.param("stop", "tool_calls", "stop", "tool_calls", id="nothing in common: nothing marked"),
        pytest.param("A message ends", ".A message ends", "A message ends", "<.>A message ends", id="something put before"),
        pytest.param("the answer is 42.", "the answer is 43.", "the answer is 4<2>.", "the answer is 4<3>.", id="one digit"),
        pytest.param("same", "same", "same", "same", id="no difference"),
        pytest.param("", "x", "", "x", id="nothing against something"),
    ],
)  # fmt: skip
def test_differences_are_marked(expected, actual, left, right):
    wanted, found = contrast(expected, actual)
    assert (marked(wanted), marked(found)) == (left, right)


def test_in_long_texts_the_difference_stays():
    wanted, found = contrast("x" * 50_000 + "a" + "y" * 50_000, "x" * 50_000 + "b" + "y" * 50_000)
    assert "x<a>y" in marked(wanted)
    assert "x<b>y" in marked(found)
    assert len(plain(wanted)) < 500
    assert plain(wanted).startswith("[… 49,840 characters left out …]")


@given(TEXTS, TEXTS, TEXTS)
def test_nothing_is_changed_by_comparing(before, one, other):
    for text, parts in zip((before + one, before + other), contrast(before + one, before + other), strict=True):
        if all(piece.kind is not StretchKind.LEFT_OUT for piece in parts):
            assert "".join(piece.text for piece in parts) == text


@given(st.integers(1, 300), st.integers(10, 100))
def test_a_cut_text_says_how_much_is_missing(length, limit):
    parts = cut("".join(chr(ord("a") + place % 26) for place in range(length)), limit)
    shown = sum(len(piece.text) for piece in parts if piece.kind is not StretchKind.LEFT_OUT)
    missing = [piece.text for piece in parts if piece.kind is StretchKind.LEFT_OUT]
    assert shown == min(length, limit)
    assert missing == ([] if length <= limit else [f"{length - limit} character{'' if length - limit == 1 else 's'}"])


def differing(pieces):
    return [piece.text for piece in pieces if piece.kind is StretchKind.DIFFERS]


def test_prompts_are_compared_token_by_token():
    before = (
        "<|start|>system<|message|>Reasoning: medium"
        + ". A long line." * 60
        + "<|end|><|start|>user<|message|>Hi<|end|>"
    )
    after = before.replace(": medium", ": low").replace("Hi<|end|>", "Hi<|return|>")
    expected, actual = contrast(before, after)
    assert differing(expected) == [" medium", "<|end|>"]
    assert differing(actual) == [" low", "<|return|>"]
    assert any(piece.kind is StretchKind.LEFT_OUT for piece in expected)
    assert plain(expected).startswith("<|start|>system<|message|>Reasoning: medium")


def test_a_character_of_several_tokens_is_not_split():
    expected, actual = contrast("<|start|>a 🫨 b<|end|>", "<|start|>a 🫥 b<|end|>")
    assert "".join(piece.text for piece in expected) == "<|start|>a 🫨 b<|end|>"
    assert "🫨" in "".join(differing(expected))
    assert "🫥" in "".join(differing(actual))


def test_prompts_that_tokens_cannot_carry_are_compared_as_text():
    expected, _ = contrast("<|start|>\ud800<|end|>" + "x" * 500, "<|start|>\ud801<|end|>" + "x" * 500)
    assert differing(expected) == ["\ud800"]
