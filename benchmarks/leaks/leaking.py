"""Corpus of leaks: innocent conversations in each form in which servers are known to leak.

Each form is from catalogue entries (`golden/defects.json`). `expects` is the expected verdict from the text alone: a leak with structure must
fail, and a lone marker may be suspected. Text that looks like an answer is undetectable. With known emitted ids every form must fail.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from innocent import Case, corpus
from innocent.case import Shown, emitted

from harmony_ref import decode, encode, encode_with_special_tokens

FAIL, SUSPECT, HIDDEN = "fail", "suspect", "hidden"
SOURCES = (
    "docstrings",
    "library code",
    "licences",
    "channel words first",
    "chat logs",
    "languages",
    "Markdown",
    "JSON",
    "thoughts",
    "calls",
    "short answers",
    "odd characters",
)
"""The strata whose cases are leaked: none of them speaks of the format."""


@dataclass(frozen=True, kw_only=True)
class Way:
    name: str
    catalogue: str
    leak: Callable[[Case], Shown]
    expects: str = FAIL
    calls: bool = False


def _raw(case: Case) -> str:
    return decode(list(emitted(case)))


def _skipped(case: Case) -> str:
    """Return the text of a decoder that omits special tokens."""
    call = case.calls[0] if case.calls else None
    thought = f"analysis{case.reasoning}assistant"
    if call is None:
        return f"{thought}final{case.content}"
    preamble = f"commentary{case.content}assistant" if case.content else ""
    return f"{thought}{preamble}commentary to=functions.{call.name} json{call.arguments}"


def _content(
    text: Callable[[Case], str],
    *,
    with_reasoning: bool = False,
    finish: str = "stop",
    ids: Callable[[Case], tuple[int, ...]] = emitted,
) -> Callable[[Case], Shown]:
    return lambda case: Shown(
        content=text(case), reasoning=case.reasoning if with_reasoning else None, ids=ids(case), finish=finish
    )


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(text: str) -> str:
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def _after_header(case: Case) -> str:
    return _raw(case).removeprefix("<|channel|>")


def _bare_call(case: Case) -> str:
    return f"commentary to=functions.{case.calls[0].name} json{case.calls[0].arguments}"


def _raw_call(case: Case) -> str:
    return f"<|channel|>commentary to=functions.{case.calls[0].name} <|constrain|>json<|message|>{case.calls[0].arguments}<|call|>"


def _called(
    change: Callable[[Case], tuple[str, str, str]], ids: Callable[[Case], tuple[int, ...]] = emitted
) -> Callable[[Case], Shown]:
    """Return a call with another name, arguments and id."""

    def leak(case: Case) -> Shown:
        name, arguments, key = change(case)
        call = {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}
        return Shown(
            content=case.content or None, reasoning=case.reasoning, calls=(call,), ids=ids(case), finish="tool_calls"
        )

    return leak


def _doubled(case: Case) -> tuple[int, ...]:
    call = case.calls[0]
    header = f"<|channel|>commentary to=functions.{call.name}<|channel|>commentary<|message|>"
    return tuple(
        encode_with_special_tokens(
            f"<|channel|>analysis<|message|>{case.reasoning}<|end|><|start|>assistant{header}{call.arguments}<|call|>"
        )
    )


def _cut(case: Case) -> tuple[int, ...]:
    text = f"<|channel|>analysis<|message|>{case.reasoning}<|end|><|start|>assistant<|channel|>commentary to=functions.search"
    return tuple(encode_with_special_tokens(text))


def _unended(case: Case) -> tuple[int, ...]:
    text = f"<|channel|>analysis<|message|>{case.reasoning}<|start|>assistant<|channel|>final<|message|>{case.content}<|return|>"
    return tuple(encode_with_special_tokens(text))


def _key(case: Case) -> str:
    return json.dumps({**_object(case), "<|constrain|>": 1})


def _object(case: Case) -> dict:
    value = json.loads(case.calls[0].arguments)
    return value if isinstance(value, dict) else {}


def _swallowed(case: Case) -> Shown:
    return Shown(
        reasoning=f"{case.reasoning}<|start|>assistant<|channel|>final<|message|>{case.content}", ids=_unended(case)
    )


def _details(case: Case) -> Shown:
    text = f"{case.reasoning}<|end|><|start|>assistant<|channel|>final<|message|>"
    return Shown(
        content=case.content,
        reasoning=case.reasoning,
        ids=emitted(case),
        more={"reasoning_details": [{"index": 0, "type": "reasoning.text", "text": text}]},
    )


def _twice(case: Case) -> Shown:
    return Shown(content=f"{case.reasoning}\n\n{case.content}", reasoning=case.reasoning, ids=emitted(case))


def _run_on(case: Case) -> tuple[int, ...]:
    return (*emitted(case)[:-1], *encode_with_special_tokens(f"<|end|><|start|>user<|message|>{_QUESTION}<|end|>"))


_QUESTION = "And which of them would you choose yourself?"


def _waving(case: Case) -> tuple[int, ...]:
    text = f"<|channel|>analysis<|message|>{case.reasoning}<|end|><|start|>assistant<|channel|>final<|message|>Hello \U0001fae1. "
    return (*encode_with_special_tokens(text), *encode(case.content), *encode_with_special_tokens("<|return|>"))


WAYS = (
    Way(name="special tokens skipped", catalogue="T01 M09 M15 P09", leak=_content(_skipped)),
    Way(name="special tokens skipped, a call", catalogue="M08 T01", leak=_content(_skipped), calls=True),
    Way(name="a call as text", catalogue="M08", leak=_content(_bare_call, with_reasoning=True), calls=True),
    Way(
        name="a call by its header alone",
        catalogue="M08",
        leak=_content(lambda case: _bare_call(case).removeprefix("commentary "), with_reasoning=True),
        calls=True,
    ),
    Way(
        name="the type of a call glued",
        catalogue="M07",
        leak=_content(lambda case: f"assistantjson{case.calls[0].arguments}", with_reasoning=True),
        calls=True,
    ),
    Way(
        name="the first word lost", catalogue="T01", leak=_content(lambda case: _skipped(case).removeprefix("analysis"))
    ),
    Way(
        name="only the last header",
        catalogue="T01",
        leak=_content(lambda case: f"assistantfinal{case.content}", with_reasoning=True),
    ),
    Way(
        name="words with line ends",
        catalogue="T01",
        leak=_content(lambda case: f"analysis\n{case.reasoning}\nassistant\nfinal\n{case.content}"),
        expects=HIDDEN,
    ),
    Way(
        name="the channel's name left",
        catalogue="T01",
        leak=_content(lambda case: f"final{case.content}", with_reasoning=True),
        expects=SUSPECT,
    ),
    Way(
        name="thought alone, with its word",
        catalogue="T01",
        leak=_content(lambda case: f"analysis{case.reasoning}"),
        expects=SUSPECT,
    ),
    Way(name="raw", catalogue="R01", leak=_content(_raw)),
    Way(name="raw, a call", catalogue="M03 S06", leak=_content(_raw_call, with_reasoning=True), calls=True),
    Way(name="raw, first marker lost", catalogue="R01", leak=_content(_after_header)),
    Way(
        name="raw, last marker lost", catalogue="R01", leak=_content(lambda case: _raw(case).removesuffix("<|return|>"))
    ),
    Way(name="raw, escaped for JSON", catalogue="R01", leak=_content(lambda case: _json(_raw(case)))),
    Way(name="raw, escaped for HTML", catalogue="R01", leak=_content(lambda case: _html(_raw(case)))),
    Way(
        name="last marker kept, reasoning hidden",
        catalogue="V07",
        leak=_content(lambda case: f"{case.content}<|return|>"),
    ),
    Way(
        name="last marker kept, reasoning shown",
        catalogue="V07",
        leak=_content(lambda case: f"{case.content}<|return|>", with_reasoning=True),
        expects=SUSPECT,
    ),
    Way(
        name="tail of the header kept",
        catalogue="V07",
        leak=_content(lambda case: f"final<|message|>{case.content}", with_reasoning=True),
        expects=SUSPECT,
    ),
    Way(
        name="cut in a header",
        catalogue="V07",
        leak=_content(
            lambda case: "<|channel|>commentary to=functions.search", with_reasoning=True, finish="length", ids=_cut
        ),
        expects=SUSPECT,
    ),
    Way(
        name="channel in a name",
        catalogue="V04",
        leak=_called(
            lambda case: (f"{case.calls[0].name}<|channel|>commentary", case.calls[0].arguments, "call_1"), _doubled
        ),
        calls=True,
    ),
    Way(
        name="header as a name",
        catalogue="O01",
        leak=_called(lambda case: ("assistant<|channel|>analysis", case.calls[0].arguments, "call_1"), _doubled),
        calls=True,
    ),
    Way(
        name="channel glued to a name",
        catalogue="V04",
        leak=_called(lambda case: (f"{case.calls[0].name}commentary", case.calls[0].arguments, "call_1"), _doubled),
        calls=True,
        expects=HIDDEN,
    ),
    Way(
        name="marker in an id",
        catalogue="V04",
        leak=_called(lambda case: (case.calls[0].name, case.calls[0].arguments, "functions.f<|channel|>:0"), _doubled),
        calls=True,
    ),
    Way(
        name="marker behind the arguments",
        catalogue="M06",
        leak=_called(lambda case: (case.calls[0].name, f"{case.calls[0].arguments}<|call|>", "call_1")),
        calls=True,
    ),
    Way(
        name="marker as a key",
        catalogue="M06",
        leak=_called(lambda case: (case.calls[0].name, _key(case), "call_1")),
        calls=True,
    ),
    Way(name="header in the reasoning", catalogue="P12", leak=_swallowed),
    Way(name="header in reasoning_details", catalogue="P12", leak=_details),
    Way(
        name="<think> around the thought",
        catalogue="M09",
        leak=_content(lambda case: f"<think>{case.reasoning}</think>\n{case.content}"),
    ),
    Way(
        name="<reasoning> around the thought",
        catalogue="M09",
        leak=_content(lambda case: f"<reasoning>{case.reasoning}</reasoning>{case.content}"),
    ),
    Way(name="thought in both fields", catalogue="V14", leak=_twice),
    Way(
        name="thought before the answer",
        catalogue="V14",
        leak=_content(lambda case: f"{case.reasoning}\n\n{case.content}"),
        expects=HIDDEN,
    ),
    Way(
        name="continues as the user",
        catalogue="M04",
        leak=_content(lambda case: f"{case.content}\n\nUser: {_QUESTION}", with_reasoning=True, ids=_run_on),
        expects=SUSPECT,
    ),
    Way(
        name="tokens decoded one by one",
        catalogue="",
        leak=_content(lambda case: f"Hello \ufffd\ufffd. {case.content}", with_reasoning=True, ids=_waving),
        expects=SUSPECT,
    ),
)


def leaks(each: int) -> Iterator[tuple[Way, Case, Shown]]:
    """Return `each` cases of every form, from all parts of the sources in turn."""
    cases = [case for case in corpus(names=SOURCES) if len(case.reasoning) > 8 and case.finish == "stop"]
    random.Random("leaks").shuffle(cases)
    calls, talk = [case for case in cases if case.calls], [case for case in cases if not case.calls]
    for number, way in enumerate(WAYS):
        pool = calls if way.calls else talk
        for place in range(each):
            case = pool[(number * 37 + place) % len(pool)]
            yield way, case, way.leak(case)
