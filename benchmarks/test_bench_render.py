import pytest

ALL = ("small chat", "five tools", "long messages, 10000", "short messages, 10000")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("contender", ["ours", "compat", "library"])
def test_render(measured, contender, name):
    measured(contender, f"render, {name}")


@pytest.mark.parametrize("name", ALL[2:])
def test_encode_alone(measured, name):
    measured("bare", f"render, {name}")


@pytest.mark.parametrize("contender", ["ours", "compat", "library"])
def test_one_message_more(measured, contender):
    measured(contender, "one message more")


def test_one_message_more_growing(measured):
    measured("ours", "one message more, growing")
