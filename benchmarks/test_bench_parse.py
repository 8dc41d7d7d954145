import pytest


@pytest.mark.parametrize("name", ["one message, 10000", "20-token messages, 10000"])
@pytest.mark.parametrize("contender", ["ours", "compat", "library", "bare"])
def test_parse(measured, contender, name):
    measured(contender, f"parse, {name}")


@pytest.mark.parametrize("part", ["ids as characters", "decode_bytes", "bytes as text", "markers counted"])
def test_part_of_parsing(measured, part):
    measured("parts", f"part, {part}")
