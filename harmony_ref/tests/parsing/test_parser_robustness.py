"""Hostile tokens: nothing but errors of this package, memory in proportion to the input, and work too.

Work is counted in executed lines, one for each turn of a loop or comprehension, so a slow or busy machine changes nothing.
"""

import contextlib
import sys
import tracemalloc

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harmony_ref import ParseError, Role, StreamParser, parse, tokens

START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL = 200006, 200007, 200008, 200005, 200003, 200002, 200012
CONTROL = [START, START, MESSAGE, MESSAGE, END, RETURN, CALL, CHANNEL, CONSTRAIN]
WORDS = [173781, 1428, 17196, 35644, 220, 316, 28, 44580, 64, 78747, 4103, 104, 254]
integers = st.one_of(
    st.sampled_from(CONTROL), st.sampled_from(CONTROL), st.sampled_from(WORDS), st.integers(0, 201_090), st.integers()
)
runs = st.lists(integers, max_size=40)
roles = st.none() | st.sampled_from(list(Role))
trying = settings(
    max_examples=600, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def read_on(parser, run):
    """Feed all of it; after a refused token go on with the next."""
    place = 0
    while place < len(run):
        try:
            parser.feed(run[place:])
            place = len(run)
        except ParseError as error:
            place = error.position + 1


@trying
@given(run=runs, role=roles, strict=st.booleans())
@example(run=[-1], role=None, strict=True)
@example(run=[MESSAGE, 10**30, END], role=Role.USER, strict=False)
@example(run=[-(10**30), END], role=Role.USER, strict=False)
def test_any_integers_are_parsed_or_refused_with_a_parse_error(run, role, strict):
    with contextlib.suppress(ParseError):
        parse(run, role, strict=strict)
    at_once = StreamParser(role, strict=strict)
    read_on(at_once, run)
    one_by_one = StreamParser(role, strict=strict)
    for token in run:
        with contextlib.suppress(ParseError):
            one_by_one.process(token)
    for parser in (at_once, one_by_one):
        with contextlib.suppress(ParseError):
            parser.finish()
    assert list(at_once.tokens) == list(one_by_one.tokens) == run
    assert list(at_once.messages) == list(one_by_one.messages)
    assert at_once.state_data == one_by_one.state_data


@trying
@given(run=runs, role=roles)
@example(run=[-1], role=None)
@example(run=[MESSAGE, 10**30, END], role=Role.USER)
def test_lenient_parsing_refuses_no_integers(run, role):
    parse(run, role, lenient=True)


def lines(work):
    """The number of lines that `work()` executes; each turn of a loop, a comprehension's too, is at least one."""
    count = 0

    def trace(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_each_turn_of_a_loop_is_work():
    assert lines(lambda: [None for _ in range(1000)]) >= 1000
    assert lines(lambda: all(True for _ in range(1000))) >= 1000


HOSTILE = {
    "a header of words": lambda n: [START, *[1354] * n, MESSAGE, END],
    "a header of white space": lambda n: [START, *[220] * n, MESSAGE, END],
    "a header of channels": lambda n: [START, *[CHANNEL, 17196] * (n // 2), MESSAGE, END],
    "a header of recipients": lambda n: [START, *tokens.encode(" to=a") * (n // 3), MESSAGE, END],
    "a header of constraints": lambda n: [START, *[CONSTRAIN] * n, MESSAGE, END],
    "a header of unknown ids": lambda n: [START, *[201_089] * n, MESSAGE, END],
    "a header of broken bytes": lambda n: [START, *[78747] * n, MESSAGE, END],
    "a header that never ends": lambda n: [START, *[1354] * n],
    "nothing but stop tokens": lambda n: [END] * n,
    "nothing but starts": lambda n: [START] * n,
    "nothing but unknown ids": lambda n: [201_089] * n,
    "nothing but negative ids": lambda n: [-1] * n,
    "content of unknown ids": lambda n: [START, 173781, MESSAGE, *[201_089] * n, END],
    "content of broken bytes": lambda n: [START, 173781, MESSAGE, *[186978] * n, END],
    "content of unfinished characters": lambda n: [START, 173781, MESSAGE, *[4103] * n, END],
    "content of markers": lambda n: [START, 173781, MESSAGE, *[START, MESSAGE] * (n // 2), END],
    "headers without a message": lambda n: [START, 173781, END] * (n // 3),
    "empty messages": lambda n: [START, 173781, MESSAGE, END] * (n // 4),
    "unreadable headers": lambda n: [START, 1354, MESSAGE, END] * (n // 4),
}
WAYS = {
    "parse": lambda run, strict: parse(run, strict=strict),
    "parse leniently": lambda run, _strict: parse(run, lenient=True),
    "feed at once": lambda run, strict: StreamParser(strict=strict).feed(run),
    "process": lambda run, strict: one_by_one(StreamParser(strict=strict), run),
    "feed in sevens": lambda run, strict: in_sevens(StreamParser(strict=strict), run),
}


def one_by_one(parser, run):
    for token in run:
        with contextlib.suppress(ParseError):
            parser.process(token)


def in_sevens(parser, run):
    for first in range(0, len(run), 7):
        with contextlib.suppress(ParseError):
            parser.feed(run[first : first + 7])


def work_of(way, of_length, length, strict):
    run = of_length(length)
    with contextlib.suppress(ParseError):
        way(run, strict)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("of_length", HOSTILE.values(), ids=HOSTILE)
def test_twice_the_tokens_are_twice_the_work_for(of_length, way, strict):
    # The first time fills the caches.
    work_of(way, of_length, 200, strict)
    once = lines(lambda: work_of(way, of_length, 600, strict))
    twice = lines(lambda: work_of(way, of_length, 1200, strict))
    assert twice < 2.2 * once + 250


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
@pytest.mark.parametrize("of_length", HOSTILE.values(), ids=HOSTILE)
def test_memory_is_in_proportion_to_the_tokens_of(of_length, strict):
    run = of_length(20_000)
    # The first time fills the caches.
    feed_all(StreamParser(strict=strict), of_length(200))
    tracemalloc.start()
    try:
        feed_all(StreamParser(strict=strict), run)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Most is the words of a header, which become strings of their own; else it is the tokens and their text.
    assert peak < BYTES_PER_TOKEN * len(run)


BYTES_PER_TOKEN = 400


def feed_all(parser, run):
    with contextlib.suppress(ParseError):
        parser.feed(run)
    with contextlib.suppress(ParseError):
        parser.finish()


def test_unknown_ids_are_not_remembered():
    parser = StreamParser(Role.ASSISTANT)
    parser.feed([MESSAGE, 64])
    known = len(tokens.TOKEN_BYTES)
    parser.feed(range(300_000, 310_000))
    for token in range(300_000, 301_000):
        parser.process(token)
    assert len(tokens.TOKEN_BYTES) == known


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
@pytest.mark.parametrize("name", ["nothing but stop tokens", "nothing but unknown ids", "unreadable headers"])
def test_reading_on_after_every_error_is_linear_too(name, strict):
    run = HOSTILE[name]
    read_on(StreamParser(strict=strict), run(100))
    once = lines(lambda: read_on(StreamParser(strict=strict), run(200)))
    twice = lines(lambda: read_on(StreamParser(strict=strict), run(400)))
    assert twice < 2.2 * once + 250


NO_TOKENS = {"a float": 1.5, "text": "a", "nothing": None, "a list": [64]}


@pytest.mark.parametrize("state", [[], [START], [START, 173781, MESSAGE], [START, 173781, MESSAGE, 4103]], ids=str)
@pytest.mark.parametrize("token", NO_TOKENS.values(), ids=NO_TOKENS)
def test_what_is_no_integer_is_a_type_error_or_a_parse_error(token, state):
    for read in (lambda parser: parser.process(token), lambda parser: parser.feed([64, token, 64])):
        parser = StreamParser()
        parser.feed(state)
        with contextlib.suppress(TypeError, ParseError):
            read(parser)
            parser.feed([MESSAGE, END])
