import gzip

import pytest

from harmony_ref import vocabulary


def test_the_packaged_file_is_the_published_one():
    assert len(vocabulary.ranks()) == vocabulary.SIZE
    assert set(vocabulary.ranks().values()) == set(range(vocabulary.SIZE))


def test_a_damaged_file_is_refused_with_both_digests(monkeypatch):
    monkeypatch.setattr(gzip, "decompress", lambda data: b"IQ== 0\n")
    with pytest.raises(vocabulary.VocabularyError, match="is damaged") as caught:
        vocabulary.unpacked()
    assert caught.value.expected == vocabulary.SHA256
    assert caught.value.actual in str(caught.value)
