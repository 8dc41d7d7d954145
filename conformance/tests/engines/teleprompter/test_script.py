import re
from itertools import pairwise

import pytest

from harmony_conformance.engines.teleprompter.script import (
    LAG,
    SPECIALS,
    TRAILER_LENGTH,
    ScriptTooLongError,
    UnencodableTokenError,
    code_by_token,
    max_script_length,
    read_back,
    simulate_output,
    token_by_code,
    write_script,
)
from harmony_ref import encode, encode_with_special_tokens
from harmony_ref.tokenizer import vocabulary

ENDING = (200007, 200006, 173781)  # <|end|><|start|>assistant
QUOTED = (1, *ENDING)  # a quotation mark before it
MARKER = re.compile(r"<\|[a-z0-9_]+\|>")


def prompt(text, before="Hello. ", trailer=ENDING):
    return [*encode_with_special_tokens("<|start|>user<|message|>"), *encode(before + text), *trailer]


def played(ids, **kwargs):
    """What the checkpoint answers to a prompt that ends with the script."""
    trailer = kwargs.get("trailer", ENDING)
    return simulate_output(prompt(write_script(ids, len(trailer)), **kwargs), len(ids))


def said_after(before, *ids):
    return [*encode_with_special_tokens(before), *ids]


COMPLETIONS = {
    "reasoning and answer": "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>",
    "a call": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>',
    "characters of several tokens": "<|channel|>final<|message|>\N{FACE WITH TEARS OF JOY}\N{TIBETAN DIGIT NINE}\u200d e\u0301 한국어<|return|>",
    "one digit before a marker": "<|channel|>final<|message|>7<|return|>",
    "two digits before a marker": "<|channel|>final<|message|>42<|return|>",
    "three digits before a marker": "<|channel|>final<|message|>123<|return|>",
    "digits that are codes": "<|channel|>final<|message|>600 707 800,999. 1999 70710<|return|>",
    "spaces before a marker": "<|channel|>final<|message|>two:  <|end|>",
    "line ends before a marker": "<|channel|>final<|message|>\n\n<|return|>",
    "a run of spaces before digits": "<|channel|>final<|message|>x     12   <|return|>",
    "nothing but text": "plain words, no marker at all",
    "a space first": " to=functions.f<|channel|>commentary<|message|>{}<|call|>",
    "a digit first": "42 is it",
    "a line end first": "\n\nyes",
    "nothing": "",
}


@pytest.mark.parametrize("trailer", [ENDING, QUOTED], ids=["plain", "quoted"])
@pytest.mark.parametrize("what", COMPLETIONS)
def test_a_completion_is_said_token_for_token(what, trailer):
    ids = encode_with_special_tokens(COMPLETIONS[what])
    assert played(ids, trailer=trailer) == ids


@pytest.mark.parametrize(
    "before", ["", "word", "12", "1", "a ", "  ", "end\n", "<", "7 ", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
)
def test_what_stands_before_a_script_does_not_matter(before):
    ids = encode_with_special_tokens("42<|channel|>final<|message|> 7<|return|>")
    assert played(ids, before=before) == ids


@pytest.mark.parametrize("special", SPECIALS)
def test_every_special_token_can_be_said(special):
    ids = said_after("word ", special, *encode("word"))
    text = write_script(ids)
    assert read_back(text)[2 : 2 + len(ids)] == ids


@pytest.mark.parametrize("before", ["word", "word ", "12", "<|message|>"])
def test_every_single_byte_can_be_said(before):
    for byte in range(256):
        ids = said_after(before, vocabulary.ranks()[bytes([byte])], 200002)
        assert played(ids) == ids, byte


def test_every_number_can_be_said_before_a_marker_and_after_one():
    for digits in (1, 2, 3):
        for number in range(0, 10**digits, 7 if digits == 3 else 1):
            ids = encode_with_special_tokens(f"<|message|>{number:0{digits}}<|return|>")
            assert played(ids) == ids, number


def test_every_marker_in_ordinary_tokens_can_be_said_and_is_never_spelled():
    ids = [200008, *encode("Ends with <|end|>, <|return|> <|reserved_200013|><|start|> or <|call|>."), 200002]
    assert played(ids) == ids
    assert not MARKER.search(write_script(ids))


def test_a_message_of_text_only_stays_readable():
    text = write_script(encode_with_special_tokens("<|channel|>final<|message|>Good morning!<|return|>"))
    assert text.startswith("\n704707final710Good morning!704704")


def test_a_script_fills_the_window_whatever_its_length():
    for text in ("", "a", "word " * 40):
        assert len(read_back(write_script(encode(text)))) == max_script_length() + 2  # the line end and the separator


def test_the_longest_script_is_said():
    ids = [200008, *[1428] * (max_script_length() - 2), 200002]
    assert played(ids) == ids
    assert max_script_length() == LAG - TRAILER_LENGTH + 1 == 254


def test_one_token_more_is_refused_with_its_numbers():
    with pytest.raises(
        ScriptTooLongError, match=r"^invalid script: expected at most 254 tokens for the teleprompter, got 255$"
    ) as caught:
        write_script([200002] * 255)
    assert (caught.value.length, caught.value.most) == (255, 254)


UNSPEAKABLE = {
    "a special token without a meaning": ([200005, 200500], 1, 200500),
    "part of a word that is a token": ([200008, *encode("Hel"), *encode("lo"), 200002], 1, 5308),
}


@pytest.mark.parametrize("what", UNSPEAKABLE)
def test_what_no_text_brings_about_is_refused_with_its_place(what):
    ids, position, token = UNSPEAKABLE[what]
    with pytest.raises(UnencodableTokenError) as caught:
        write_script(ids)
    assert (caught.value.position, caught.value.token) == (position, token)


def test_no_code_stands_for_two_tokens():
    assert len(set(code_by_token().values())) == len(code_by_token()) == len(token_by_code())


def test_codes_are_one_token_each_and_stand_side_by_side():
    for one, other in pairwise(code_by_token().values()):
        assert len(encode(one + other)) == 2 or not (one + other).isdigit()


def test_a_short_prompt_is_answered_with_nothing():
    assert simulate_output([1] * LAG, 5) == [200002]
    assert simulate_output([1] * (LAG + 1), 3) == [1, 1, 1]
