"""Which reasoning of earlier turns each history keeps, written out for conversations in letters."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_ref import Author, Message, Role, without_dropped_analysis
from harmony_ref.styles import History, kept_indices

U, A, C, T, F = (
    Message(author=Role.USER, content="u"),
    Message(author=Role.ASSISTANT, content="an", channel="analysis"),
    Message(author=Role.ASSISTANT, content="{}", channel="commentary", recipient="functions.f"),
    Message(author=Author(role=Role.TOOL, name="functions.f"), content="r", channel="commentary"),
    Message(author=Role.ASSISTANT, content="fi", channel="final"),
)
B = Message(author=Role.ASSISTANT, content="1", channel="analysis", recipient="python")
Q = Message(author=Role.USER, content="q", channel="final")
LETTERS = {"U": U, "A": A, "C": C, "T": T, "F": F, "B": B, "Q": Q}

# (conversation, kept as 0.0.8 | before the last final | before the last message of the user)
KEPT = [
    ("UA", "UA", "UA", "UA"),
    ("UAF", "UF", "UF", "UAF"),
    ("UAFU", "UFU", "UFU", "UFU"),
    ("UACT", "UACT", "UACT", "UACT"),
    ("UACTAF", "UCTF", "UCTF", "UACTAF"),
    ("UACTAFU", "UCTFU", "UCTFU", "UCTFU"),
    ("UAFUA", "UAFUA", "UFUA", "UFUA"),
    ("UAFUACT", "UAFUACT", "UFUACT", "UFUACT"),
    ("UAFUAFU", "UFUAFU", "UFUFU", "UFUFU"),
    ("UACTU", "UACTU", "UACTU", "UCTU"),
    ("UABTAFU", "UTFU", "UTFU", "UBTFU"),
    ("UAQ", "UAQ", "UAQ", "UQ"),
    ("", "", "", ""),
]


@pytest.mark.parametrize(("given", "library", "final", "user"), KEPT, ids=[row[0] or "nothing" for row in KEPT])
def test_which_reasoning_each_history_keeps(given, library, final, user):
    messages = [LETTERS[letter] for letter in given]
    kept = ["".join(given[index] for index in kept_indices(messages, history)) for history in History]
    assert kept == [library, final, user]
    assert [messages[index] for index in kept_indices(messages, History.AS_0_0_8)] == without_dropped_analysis(messages)


@settings(max_examples=200, deadline=None)
@given(letters=st.text(alphabet="UACTFB", max_size=9))
def test_every_history_keeps_an_open_loop_and_drops_what_led_to_one_answer(letters):
    messages = [LETTERS[letter] for letter in letters]
    for history in History:
        kept = kept_indices(messages, history)
        assert all(first < second for first, second in pairwise(kept))
        assert all(index in kept for index, letter in enumerate(letters) if letter not in "AB")
        if letters.endswith("T") and "F" not in letters[letters.rfind("U") + 1 :]:
            assert all(index in kept for index in range(letters.rfind("U") + 1, len(letters)))
        if letters.count("F") == 1 and letters.endswith("FU"):
            assert all(letters[index] != "A" for index in kept if index < letters.index("F"))
