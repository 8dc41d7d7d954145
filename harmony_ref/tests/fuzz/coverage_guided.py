"""Coverage-guided fuzzing of the parsers: whatever the bytes, nothing but a ParseError, and the same one by one.

Opt-in, because atheris is no dependency of the project (it has wheels for Python 3.11 to 3.13 on Linux):

    pip install atheris && python harmony_ref/tests/fuzz/coverage_guided.py -max_total_time=600
"""

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["harmony_ref"]):
    from harmony_ref import ParseError, Role, StreamParser, parse

# Most bytes stand for tokens that mean something to a parser; the last for the first byte of any id.
TOKENS = [200006, 200007, 200008, 200005, 200003, 200002, 200012, 173781, 1428, 17196, 35644, 220, 316, 28, 44580]
TOKENS += [64, 78747, 115963, 4103, 104, 254, 198, 199999, 201088, 201089, -1, 2**40]
ROLES = [None, *Role]


def run_of(data):
    source = iter(data)
    for byte in source:
        if byte < len(TOKENS):
            yield TOKENS[byte]
        elif byte < 2 * len(TOKENS):
            yield int.from_bytes([next(source, 0), next(source, 0), next(source, 0)])
        else:
            yield byte


def read(data):
    if len(data) < 2:
        return
    role, strict = ROLES[data[0] % len(ROLES)], bool(data[1] & 1)
    run = list(run_of(data[2:]))
    with contextlib.suppress(ParseError):
        parse(run, role, strict=strict)
    parse(run, role, lenient=True)
    at_once, one_by_one = StreamParser(role, strict=strict), StreamParser(role, strict=strict)
    place = 0
    while place < len(run):
        try:
            at_once.feed(run[place:])
            place = len(run)
        except ParseError as error:
            place = error.position + 1
    for token in run:
        with contextlib.suppress(ParseError):
            one_by_one.process(token)
    for parser in (at_once, one_by_one):
        with contextlib.suppress(ParseError):
            parser.finish()
    assert list(at_once.messages) == list(one_by_one.messages)
    assert at_once.state_data == one_by_one.state_data


atheris.Setup(sys.argv, read)
atheris.Fuzz()
