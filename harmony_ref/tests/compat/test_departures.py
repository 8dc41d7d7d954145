"""Where the compatible API is different on purpose: each line of the package's docstring, shown on both sides."""

import copy
import pickle

import pytest

import harmony_ref


def test_the_vocabulary_is_not_looked_for_elsewhere(ours, monkeypatch, tmp_path):
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(tmp_path))
    monkeypatch.setenv("TIKTOKEN_RS_CACHE_DIR", str(tmp_path))
    assert ours.load_harmony_encoding("HarmonyGptOss").encode("hello world") == [24912, 2375]
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_reference_is_the_cause_and_says_more(official, ours):
    def caught(api):
        parser = api.StreamableParser(api.encoding, None)
        with pytest.raises(api.HarmonyError) as told:
            parser.process(5)
        return told.value

    assert str(caught(ours)) == str(caught(official))
    assert type(caught(ours)) is ours.HarmonyError
    assert caught(official).__cause__ is None
    cause = caught(ours).__cause__
    assert isinstance(cause, harmony_ref.UnexpectedTokenError)
    assert (cause.token, cause.position, cause.expected) == (5, 0, "<|start|>")
    assert issubclass(ours.HarmonyError, harmony_ref.HarmonyError)


def test_stop_tokens_come_in_order(official, ours):
    for name in ("stop_tokens", "stop_tokens_for_assistant_actions"):
        assert getattr(ours.encoding, name)() == sorted(getattr(official.encoding, name)())


def test_an_encoding_can_be_copied(official, ours):
    for make_copy in (copy.deepcopy, lambda encoding: pickle.loads(pickle.dumps(encoding))):
        with pytest.raises(TypeError, match="cannot pickle"):
            make_copy(official.encoding)
        assert make_copy(ours.encoding).encode("hello world") == [24912, 2375]


def test_text_that_is_no_json_is_refused_in_other_words(official, ours):
    def way(api):
        class Odd(api.Conversation):
            def to_json(self):
                return '{"messages": [,]}'

        return api.encoding.render_conversation(Odd())

    assert official.answer(way)["error"] == ours.answer(way)["error"] == "ValueError"
    for api in (official, ours):
        assert api.answer(way)["text"].startswith("invalid conversation JSON: expected value")


def test_the_set_of_special_tokens_is_only_to_be_read(official, ours):
    def way(api):
        encoding = api.HarmonyEncoding(api.encoding._inner)
        encoding.special_tokens_set.add("hello")
        return encoding.encode("hello")

    assert official.answer(way)["error"] == "HarmonyError"
    assert ours.answer(way)["ok"] == [24912]


def test_a_parser_needs_no_encoding(official, ours):
    def way(api):
        return api.StreamableParser(None, api.Role.USER).process(200008).state.value

    assert official.answer(way)["error"] == "AttributeError"
    assert ours.answer(way)["ok"] == "Content"


def test_what_is_private_is_not_there(official, ours):
    for name in ("openai_harmony", "_PyStreamableParser", "_PyHarmonyEncoding", "_special_token_regex", "T"):
        assert hasattr(official.module, name)
        assert not hasattr(ours.module, name)
