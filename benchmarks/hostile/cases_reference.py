"""harmony_ref as a library: hostile texts, tokens, templates and schemas, each in a separate process."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from attacked_processes import script
from case import Case, expect

PART = "harmony_ref"
RUNS: Mapping[str, str] = {
    "letters": "'x'",
    "spaces": "' '",
    "digits": "'7'",
    "punctuation": "'!'",
    "newlines": "chr(10)",
    "CJK": "chr(0x4e2d)",
    "combining marks": "chr(0x301)",
    "mixed case": "'xX'",
    "words": "'ab cd '",
    "emoji joiners": "chr(0x1f468) + chr(0x200d)",
}
ENCODE = """
import time
import harmony_ref
harmony_ref.encode("warm")
unit = {unit}
text = unit * ({size} // len(unit))
begin = time.perf_counter()
try:
    count = f"{{len(harmony_ref.encode(text)):,}} tokens"
except (MemoryError, OverflowError):
    raise
except Exception as error:
    assert type(error).__module__.startswith("harmony_ref"), type(error)
    count = type(error).__name__
print(f"{{count}} in {{time.perf_counter() - begin:.2f}} s")
"""
TEMPLATES: Mapping[str, str] = {
    "string of 10^9": "{{ ('x'*10**9)|length }}",
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loop that writes": "{% for a in range(99999) %}{% for b in range(999) %}xxxxxxxxxx{% endfor %}{% endfor %}",
    "string that doubles": "{% set n = namespace(s='x'*9999) %}{% for a in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s|length }}",
    "join that multiplies": "{{ (['x'*99999]*9999)|join|length }}",
    "format width": "{{ '%999999999d'|format(1)|length }}",
    "str.format width": "{{ '{:>999999999}'.format(1)|length }}",
    "center": "{{ 'x'|center(10**9)|length }}",
    "indent": "{{ ('a\\n'*99999)|indent(99999)|length }}",
    "replace that multiplies": "{{ ('x'*99999)|replace('x', 'y'*9999)|length }}",
    "power": "{{ (9**(9**9))|string|length }}",
    "list that multiplies": "{{ ([0]*10**9)|length }}",
    "list concatenation": "{% set n = namespace(l=[0]*999) %}{% for a in range(40) %}{% set n.l = n.l + n.l %}{% endfor %}",
    "recursive macro": "{% macro m(n) %}{{ m(n+1) }}{{ m(n+1) }}{% endmacro %}{{ m(0) }}",
    "batch": "{{ [1]|batch(10**9, 'x')|list|length }}",
    "wordwrap": "{{ ('x '*99999)|wordwrap(1)|length * (99999**999) }}",
}
CALL = """
from harmony_ref.huggingface import bounded
try:
    {call}
    print("an answer")
except (MemoryError, OverflowError, RecursionError):
    raise
except Exception as error:
    assert type(error).__module__.startswith("harmony_ref"), type(error)
    print(type(error).__name__)
"""
SCHEMAS: Mapping[str, tuple[Mapping[str, object], str]] = {
    "x-regex that backtracks": ({"type": "string", "x-regex": "^(a+)+$"}, "'a' * 40 + 'b'"),
    "x-regex-iterator that backtracks": ({"type": "array", "x-regex-iterator": "(a|a)*b", "items": {}}, "'a' * 5000"),
    "x-regex with 10^6 repeats": ({"type": "string", "x-regex": "((a{0,999}){0,999}){0,999}b"}, "'a' * 5000"),
    "jmespath multiselects": (
        {"type": "string", "x-parser": "json", "x-parser-args": {"transform": " | ".join(["[@, @]"] * 40)}},
        "'[1]'",
    ),
    "jmespath, deep": ({"type": "string", "x-parser": "json", "x-parser-args": {"transform": "[" * 5000}}, "'[1]'"),
}
TOKENS = """
import random
import harmony_ref
from harmony_ref import Role
from harmony_ref.errors import HarmonyError
chance, special = random.Random(18), list(range(199998, 200019))
kinds = {}
for number in range(3000):
    tokens = [chance.choice(special) if chance.random() < 0.4 else chance.randrange(200019) for _ in range(chance.randrange(60))]
    try:
        harmony_ref.parse(tokens, Role.ASSISTANT)
        name = "parsed"
    except HarmonyError as error:
        name = "refused"
    kinds[name] = kinds.get(name, 0) + 1
print(", ".join(f"{count:,} {name}" for name, count in sorted(kinds.items())))
"""


def answered(folder: Path, text: str, seconds: float = 50) -> str:
    """Run a program; its one line is the outcome."""
    ended = script(folder, text, seconds=seconds)
    lines = [line for line in ended.err.splitlines() if line.strip()]
    expect(ended.code == 0, f"exit {ended.code}: {lines[-1][:100] if lines else ''}")
    return ended.out.strip()


def encode(unit: str, size: int, folder: Path) -> str:
    return answered(folder, ENCODE.format(unit=unit, size=size), seconds=85)


def template(text: str, folder: Path) -> str:
    message = {"role": "user", "content": "Hi"}
    return answered(folder, CALL.format(call=f"bounded.render_bounded({text!r}, [{message!r}])"))


def schema(rule: Mapping[str, object], text: str, folder: Path) -> str:
    return answered(folder, CALL.format(call=f"bounded.parse_bounded({text}, {dict(rule)!r})"))


def tokens(folder: Path) -> str:
    return answered(folder, TOKENS)


def case(name: str, report: str, expected: str, attack: object, **limits: float) -> Case:
    return Case(name=f"harmony_ref.{name}", part=PART, report=report, expected=expected, attack=attack, **limits)  # type: ignore[arg-type]


CASES = (
    *(
        case(
            f"encode 10^6 {name}",
            "F4",
            "tokens or a documented error",
            functools.partial(encode, unit, 10**6),
            memory=500,
            seconds=20,
        )
        for name, unit in RUNS.items()
    ),
    case(
        "encode 10^7 letters",
        "F4",
        "tokens or a documented error",
        functools.partial(encode, "'x'", 10**7),
        memory=900,
        seconds=30,
    ),
    case(
        "encode 10^8 letters",
        "F4",
        "tokens or a documented error",
        functools.partial(encode, "'x'", 10**8),
        memory=3000,
        seconds=90,
    ),
    case(
        "encode 10^9 letters",
        "F4",
        "tokens or a documented error",
        functools.partial(encode, "'x'", 10**9),
        memory=3000,
        seconds=60,
    ),
    *(
        case(
            f"template: {name}",
            "F10",
            "a documented error or an answer",
            functools.partial(template, text),
            memory=560,
            seconds=40,
        )
        for name, text in TEMPLATES.items()
    ),
    *(
        case(
            f"response schema: {name}",
            "F10",
            "a documented error or an answer",
            functools.partial(schema, *parts),
            memory=560,
            seconds=40,
        )
        for name, parts in SCHEMAS.items()
    ),
    case("random token lists", "survived 6", "parsed or a documented error", tokens),
)
