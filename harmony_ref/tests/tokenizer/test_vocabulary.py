import base64
import zlib

import pytest

from harmony_ref.tokenizer import vocabulary


def test_each_token_has_the_rank_that_the_published_file_gives_it():
    lines = vocabulary.read_vocabulary_file().decode().splitlines()
    pairs = [line.split() for line in lines]
    assert {base64.b64decode(token): int(rank) for token, rank in pairs} == vocabulary.ranks()
    assert len(vocabulary.ranks()) == vocabulary.SIZE


def test_a_damaged_file_is_refused_with_both_digests(monkeypatch):
    monkeypatch.setattr(zlib, "decompress", lambda data, wbits: b"IQ== 0\n")
    with pytest.raises(vocabulary.VocabularyError, match="is damaged") as caught:
        vocabulary.read_vocabulary_file()
    assert caught.value.expected == vocabulary.SHA256
    assert caught.value.actual in str(caught.value)


def test_a_file_that_cannot_be_unpacked_is_refused_alike(monkeypatch):
    monkeypatch.setattr("pkgutil.get_data", lambda package, resource: b"not gzip")
    with pytest.raises(vocabulary.VocabularyError, match="is damaged"):
        vocabulary.read_vocabulary_file()
