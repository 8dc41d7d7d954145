import json
import random

import pytest

from harmony_conformance.reference_server import MODEL
from harmony_conformance.reference_server.chat.completion import DONE, accept_request
from harmony_conformance.reference_server.defects.stages import Changes
from harmony_conformance.reference_server.model.generation import Generation, Sampling
from harmony_conformance.reference_server.model.output_parser import MessageEnd, MessageStart, TextBytes, parse_output
from harmony_ref import Author, Message, Role, encode, encode_with_special_tokens, parse, render, text_of, tokens

F = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
DOTTED = {"type": "function", "function": {"name": "mcp.search"}}
MARKERS = [text for text in tokens.SPECIAL_TOKENS if "reserved" not in text]


def complete(script, **fields):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "tools": [F, DOTTED], **fields}
    return accept_request({**body, "harmony_script": script}, serial=1, created=0, date="2025-06-28", changes=Changes())


def whole(script, **fields):
    choice = complete(script, **fields).complete_response()["choices"][0]
    message = choice["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    return message["reasoning"], message["content"], calls, choice["finish_reason"]


def streamed(script, **fields):
    *chunks, done = complete(script, stream=True, **fields).stream()
    assert done == DONE
    texts = {"reasoning": None, "content": None}
    calls = []
    for chunk in chunks:
        for name, value in chunk["choices"][0]["delta"].items():
            if name == "tool_calls":
                (call,) = value
                if "id" in call:
                    calls.append((call["function"]["name"], ""))
                calls[call["index"]] = (
                    calls[call["index"]][0],
                    calls[call["index"]][1] + call["function"]["arguments"],
                )
            elif name in texts and value:
                texts[name] = (texts[name] or "") + value
    return texts["reasoning"], texts["content"], calls, chunks[-1]["choices"][0]["finish_reason"]


def both(script, **fields):
    answer = whole(script, **fields)
    assert streamed(script, **fields) == answer
    return answer


CALLED = (None, None, [("f", "{}")], "tool_calls")
ANALYSIS = "<|channel|>analysis<|message|>x"
FINAL = "<|channel|>final<|message|>hi<|return|>"
C = "<|channel|>commentary"

MATRIX = {
    "ok-final": (f"{ANALYSIS}<|end|><|start|>assistant{FINAL}", ("x", "hi", [], "stop")),
    "call-space": (f"{C} to=functions.f <|constrain|>json<|message|>{{}}<|call|>", CALLED),
    "call-nospace": (f"{C} to=functions.f<|constrain|>json<|message|>{{}}<|call|>", CALLED),
    "call-json": (f"{C} to=functions.f json<|message|>{{}}<|call|>", CALLED),
    "call-code": (f"{C} to=functions.f code<|message|>{{}}<|call|>", CALLED),
    "call-none": (f"{C} to=functions.f<|message|>{{}}<|call|>", CALLED),
    "call-in-role": (f" to=functions.f{C} json<|message|>{{}}<|call|>", CALLED),
    "call-in-role-of-second": (
        f"{ANALYSIS}<|end|><|start|>assistant to=functions.f{C} <|constrain|>json<|message|>{{}}<|call|>",
        ("x", None, [("f", "{}")], "tool_calls"),
    ),
    "call-analysis": ("<|channel|>analysis to=functions.f code<|message|>{}<|call|>", CALLED),
    "dup-channel": (f"{C} to=functions.f{C}<|message|>{{}}<|call|>", CALLED),
    "both-recip": (f" to=functions.f{C} to=functions.f <|constrain|>json<|message|>{{}}<|call|>", CALLED),
    "recip-twice": (f"{C} to=functions.f to=functions.f <|constrain|>json<|message|>{{}}<|call|>", CALLED),
    "space-name": (
        f"{C} to=functions.Web Search <|constrain|>json<|message|>{{}}<|call|>",
        (None, None, [("Web Search", "{}")], "tool_calls"),
    ),
    "glued-recipient": ("<|channel|>commentaryto=functions.f json<|message|>{}<|call|>", CALLED),
    "no-markup": ("just text", (None, "just text", [], "stop")),
    "no-markup-ended": ("just text<|return|>", (None, "just text", [], "stop")),
    "dash-channel": ("<|channel|>analysis\u2013\u2013commentary<|message|>x<|end|>", (None, "x", [], "stop")),
    "blank-channel": ("<|channel|> analysis<|message|>x<|end|>", ("x", None, [], "stop")),
    "no-channel": ("<|message|>x<|return|>", (None, "x", [], "stop")),
    "double-assistant": (f"{ANALYSIS}<|end|><|start|>assistantassistant{FINAL}", ("x", "hi", [], "stop")),
    "no-role": (f"{ANALYSIS}<|end|><|start|>final<|message|>hi<|return|>", ("x", "hi", [], "stop")),
    "no-start": (f"{ANALYSIS}<|end|>commentary to=functions.f <|constrain|>json<|message|>{{}}<|call|>", ("x", None, [("f", "{}")], "tool_calls")),
    "no-start-but-channel": (f"{ANALYSIS}<|end|>{FINAL}", ("x", "hi", [], "stop")),
    "missing-end": (f"{ANALYSIS}<|start|>assistant{FINAL}", ("x", "hi", [], "stop")),
    "missing-end-and-start": (f"{ANALYSIS}{FINAL}", ("x", "hi", [], "stop")),
    "text-after-end": (f"{ANALYSIS}<|end|>hello<|return|>", ("x", "hello", [], "stop")),
    "line-between": (f"{ANALYSIS}<|end|>\n<|start|>assistant{FINAL}", ("x", "hi", [], "stop")),
    "after-return": (f"{FINAL}<|start|>assistant<|channel|>final<|message|>more<|return|>", (None, "hi", [], "stop")),
    "to-assistant": (f"{C} to=assistant<|message|>x<|end|>", (None, "x", [], "stop")),
    "to-user": (f"{C} to=user<|message|>x<|end|>", (None, "x", [], "stop")),
    "trunc-header": (f"{C} to=functions.f", (None, None, [], "stop")),
    "trunc-args": (f'{C} to=functions.f<|message|>{{"a":', (None, None, [("f", '{"a":')], "tool_calls")),
    "term-return": (f"{C} to=functions.f json<|message|>{{}}<|return|>", CALLED),
    "term-end": (f"{C} to=functions.f json<|message|>{{}}<|end|>", CALLED),
    "stripped-eos": (f"{C} to=functions.f json<|message|>{{}}", CALLED),
    "bare-name": (f"{C} to=f <|constrain|>json<|message|>{{}}<|call|>", CALLED),
    "dotted": (f"{C} to=functions.mcp.search json<|message|>{{}}<|call|>", (None, None, [("mcp.search", "{}")], "tool_calls")),
    "bare-dotted": (f"{C} to=mcp.search json<|message|>{{}}<|call|>", (None, None, [("mcp.search", "{}")], "tool_calls")),
    "bad-json": (f'{C} to=functions.f<|message|>{{"a":<|call|>', (None, None, [("f", '{"a":')], "tool_calls")),
    "unknown-tool": (f"{C} to=functions.zz<|message|>{{}}<|call|>", (None, None, [("zz", "{}")], "tool_calls")),
    "python-on-analysis": ("<|channel|>analysis to=python code<|message|>1+1<|call|>", ("1+1", None, [], "stop")),
    "browser-on-commentary": (f"{C} to=browser.search<|message|>{{}}<|call|>", (None, "{}", [], "stop")),
    "preamble": (f"{C}<|message|>Look:<|end|><|start|>assistant{C} to=functions.f<|message|>{{}}<|call|>", (None, "Look:", [("f", "{}")], "tool_calls")),
    "two-calls": (
        f"{C} to=functions.f<|message|>1<|end|><|start|>assistant{C} to=functions.f<|message|>2<|call|>",
        (None, None, [("f", "1"), ("f", "2")], "tool_calls"),
    ),
    "two-analyses": (f"{ANALYSIS}<|end|><|start|>assistant{ANALYSIS}<|end|><|start|>assistant{FINAL}", ("x\nx", "hi", [], "stop")),
    "typed-final": ("<|channel|>final <|constrain|>json<|message|>{}<|return|>", (None, "{}", [], "stop")),
    "headless-final": ("<|channel|>final hello you<|return|>", (None, "hello you", [], "stop")),
    "headless-call": (f'{C} to=functions.f <|constrain|>json{{"a": 1}}<|call|>', (None, None, [("f", '{"a": 1}')], "tool_calls")),
    "user-turn": (f"{FINAL[:-10]}<|end|><|start|>user<|message|>q<|return|>", ("q", "hi", [], "stop")),
    "tool-turn": (f"{FINAL[:-10]}<|end|><|start|>functions.f to=assistant{C}<|message|>q<|return|>", ("q", "hi", [], "stop")),
    "unknown-role": (f"<|start|>bot{C} to=functions.f<|message|>{{}}<|call|>", CALLED),
    "constrain-in-text": ("<|channel|>final<|message|>a<|constrain|>b<|message|>c<|reserved_200014|>d<|return|>", (None, "abcd", [], "stop")),
    "endoftext": ("<|channel|>final<|message|>a<|endoftext|>b", (None, "a", [], "stop")),
    "empty": ("", (None, None, [], "stop")),
    "only-stop": ("<|return|>", (None, None, [], "stop")),
}  # fmt: skip


@pytest.mark.parametrize("name", MATRIX)
def test_header_matrix(name):
    script, expected = MATRIX[name]
    assert both(script) == expected


def test_empty_message_is_empty_content():
    assert whole("<|channel|>final<|message|><|return|>")[1] in (None, "")


@pytest.mark.parametrize("name", MATRIX)
def test_cut_anywhere_is_a_prefix(name):
    ids = encode_with_special_tokens(MATRIX[name][0])
    before = ("", "", [])
    for limit in range(1, len(ids) + 1):
        reasoning, content, calls, finish = both(ids, max_tokens=limit)
        assert finish in {"length", "stop", "tool_calls"}
        assert not any(marker in json.dumps([reasoning, content, calls]) for marker in MARKERS)
        assert (reasoning or "").startswith(before[0])
        assert (content or "").startswith(before[1])
        assert len(calls) >= len(before[2])
        before = (reasoning or "", content or "", calls)


def test_typed_markers_are_text_and_stay():
    typed = encode("see <|end|> and <|channel|>final")
    script = [*encode_with_special_tokens("<|channel|>final<|message|>"), *typed]
    assert both(script)[1] == "see <|end|> and <|channel|>final"


@pytest.mark.parametrize("choice", [{"tool_choice": "none"}, {"tools": None}], ids=["none", "no tools"])
def test_unwanted_call_is_shown_as_content(choice):
    assert both(MATRIX["call-space"][0], **choice) == (None, "{}", [], "stop")


def test_one_call_ends_generation_when_parallel_ones_are_not_wanted():
    script = MATRIX["two-calls"][0]
    assert both(script, parallel_tool_calls=False) == (None, None, [("f", "1")], "tool_calls")
    emitted = complete(script, parallel_tool_calls=False, return_token_ids=True).complete_response()["choices"][0][
        "token_ids"
    ]
    assert emitted == encode_with_special_tokens(script.partition("<|end|>")[0] + "<|end|>")


def test_any_tokens_are_read_without_loss():
    rng = random.Random(20)
    pieces = [
        *MARKERS,
        *MARKERS,
        "assistant",
        "analysis",
        "commentary",
        "final",
        " to=functions.f",
        " json",
        "w",
        " v",
        "é",
        "🫠",
        "\n",
    ]
    for _ in range(1500):
        script = "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 14)))
        reasoning, content, calls, _finish = both(script)
        shown = json.dumps([reasoning, content, calls], ensure_ascii=False)
        assert not any(marker in shown for marker in MARKERS), script


def test_text_inside_any_framing_survives():
    rng = random.Random(21)
    heads = [script.partition("<|message|>")[0] for script, _ in MATRIX.values() if "<|message|>" in script]
    for _ in range(500):
        script = ""
        words = []
        for number in range(rng.randrange(1, 5)):
            word = f"word{number}x{rng.randrange(1000)}"
            script += rng.choice(["", "<|start|>assistant", "<|start|>"]) + rng.choice(heads).replace("<|return|>", "")
            script += f"<|message|>{word}" + rng.choice(["", "<|end|>", "<|end|>\n"])
            words.append(word)
        reasoning, content, calls, _finish = both(script)
        assert all(word in json.dumps([reasoning, content, calls]) for word in words), script


def messages():
    rng = random.Random(22)
    for _ in range(300):
        text = "".join(
            rng.choice(["a", " b", "é", "🫠", "\n", "漢", '{"a": 1}', "<|end|>"]) for _ in range(rng.randrange(6))
        )
        yield rng.choice(
            [
                Message(author=Role.ASSISTANT, channel=rng.choice(["analysis", "commentary", "final"]), content=text),
                Message(
                    author=Author(role=Role.ASSISTANT),
                    channel=rng.choice(["analysis", "commentary"]),
                    recipient=rng.choice(["functions.f", "functions.g-h", "python", "browser.open"]),
                    content_type=rng.choice([None, "<|constrain|>json", "json", "code"]),
                    content=text,
                ),
            ]
        )


def test_well_formed_output_is_read_as_the_reference_reads_it():
    every = list(messages())
    for start in range(0, len(every), 3):
        prompt_end, *ids = [*(token for message in every[start : start + 3] for token in render(message))]
        assert prompt_end == tokens.START
        ids = ids[1:]
        expected = [(m.channel, m.recipient, m.content_type, text_of(m)) for m in parse(ids, Role.ASSISTANT)]
        found = []
        for event in parse_output(Generation(ids, Sampling(stop_tokens=frozenset()))):
            match event:
                case MessageStart():
                    found.append([event.header.channel, event.header.recipient, event.header.content_type, b""])
                case TextBytes():
                    found[-1][-1] += event.data
                case MessageEnd():
                    assert event.ids
        assert [(c, r, t and t.removeprefix("<|constrain|>"), d.decode()) for c, r, t, d in found] == [
            (c, r, t and t.removeprefix("<|constrain|>"), text) for c, r, t, text in expected
        ]
