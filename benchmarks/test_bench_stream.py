import pytest

RUNS = ("one message", "20-token messages")


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("contender", ["compat", "library"])
def test_token_by_token(measured, contender, name):
    measured(contender, f"stream, {name}")


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("size", [1, 8, 64])
def test_feed(measured, size, name):
    measured("ours", f"feed {size}, {name}")


@pytest.mark.parametrize("attribute", ["current_content", "state", "messages"])
@pytest.mark.parametrize("contender", ["ours", "compat", "library"])
def test_read_each_time(measured, contender, attribute):
    measured(contender, f"read {attribute} each time, 1000")


def test_calls_alone(measured):
    measured("parts", "part, calls alone")
