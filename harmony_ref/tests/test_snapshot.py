import pytest

from harmony_ref.list_view import Snapshot


def test_a_snapshot_does_not_grow_with_its_list():
    items = [1, 2]
    snapshot = Snapshot(items)
    items.append(3)
    assert snapshot == [1, 2]
    assert list(snapshot) == [1, 2]
    assert len(snapshot) == 2
    assert 3 not in snapshot


@pytest.mark.parametrize("index", [0, 1, 2, -1, -3], ids=str)
def test_an_item_is_that_of_the_list_then(index):
    items = [10, 20, 30]
    snapshot = Snapshot(items)
    expected = items[index]
    items += [40, 50]
    assert expected == snapshot[index]


@pytest.mark.parametrize("index", [3, -4], ids=str)
def test_there_is_nothing_beyond_its_end(index):
    items = [10, 20, 30]
    snapshot = Snapshot(items)
    items += [40, 50]
    with pytest.raises(IndexError):
        snapshot[index]


@pytest.mark.parametrize("part", [slice(1, None), slice(None, -1), slice(None, None, -1), slice(5, 9)], ids=str)
def test_a_slice_is_a_list(part):
    items = [10, 20, 30]
    snapshot = Snapshot(items)
    expected = items[part]
    items += [40, 50]
    assert expected == snapshot[part]
    assert type(snapshot[part]) is list


@pytest.mark.parametrize(
    ("other", "equal"),
    [([1, 2], True), ((1, 2), True), (Snapshot([1, 2]), True), ([1, 3], False), ([1], False), ("12", False)],
    ids=["list", "tuple", "snapshot", "other items", "fewer items", "text"],
)
def test_it_is_compared_by_its_items(other, equal):
    assert (Snapshot([1, 2]) == other) is equal
    assert (other == Snapshot([1, 2])) is equal
