"""The oracle itself, and what is compared with it once for all; what is compared on random input is in `fuzz/`."""

import importlib.metadata

import pytest

from harmony_ref import tokens


def test_the_oracle_is_openai_harmony_0_0_8_and_not_its_namesake():
    assert importlib.metadata.version("openai-harmony") == "0.0.8"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("oss-harmony")


def test_special_tokens_and_stop_tokens_are_equal(oracle):
    inner = oracle.inner
    assert set(inner.special_tokens()) == set(tokens.SPECIAL_TOKENS)
    assert set(inner.stop_tokens()) == tokens.STOP_TOKENS
    assert set(inner.stop_tokens_for_assistant_actions()) == tokens.STOP_TOKENS_FOR_ASSISTANT_ACTIONS
    for text, token in tokens.SPECIAL_TOKENS.items():
        assert text == inner.decode_utf8([token])


def test_every_ordinary_token_has_equal_bytes(oracle):
    for token in range(tokens.FIRST_SPECIAL):
        assert bytes(oracle.inner.decode_bytes([token])) == tokens.decode_bytes([token])
