"""Records of logs for tests of repeated exchanges: correct and defective exchanges, as they are and with their texts alone."""

import gzip
import json
import re
import sys
from functools import cache
from itertools import islice
from pathlib import Path

from harmony_conformance.audit.batches import ReadOptions, _judge
from harmony_conformance.audit.readers.records.shapes import read_line
from harmony_conformance.audit.repeats.features import find_features
from harmony_conformance.audit.repeats.outline import find_outline
from harmony_conformance.audit.repeats.shells import PLACEHOLDER, read_shell
from harmony_conformance.audit.tallies import JudgedExchange
from harmony_conformance.evidence.exchange_json import read_exchange
from harmony_conformance.evidence.file_lines import Line, LinePosition
from harmony_conformance.golden.data import examples
from harmony_conformance.json_value import parse_object

ROOT = Path(__file__).parents[4]
BENCHMARKS = ROOT / "benchmarks"
READING = ReadOptions()
PLACE = LinePosition(file="log", offset=0)

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
}
CALLED = (
    {"role": "user", "content": "Is it raining?"},
    {"role": "assistant", "content": None, "reasoning": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
)
"""A history with a call and its result."""
USAGE = {
    "prompt_tokens": 60,
    "completion_tokens": 20,
    "total_tokens": 80,
    "completion_tokens_details": {"reasoning_tokens": 5},
}
HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_750_000_000, "model": "m"}


def asked(*messages, **more):
    return {"model": "m", "messages": [*messages, {"role": "user", "content": "How far is the Moon?"}], **more}


def whole(content, thought="A number will do.", finish="stop", **more):
    message = {"role": "assistant", "content": content, **({"reasoning": thought} if thought else {})}
    return {
        **HEAD,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": dict(USAGE),
        **more,
    }


def calling(*arguments, city="Oslo", name="get_weather"):
    """Return an answer with calls."""
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": one}}
        for number, one in enumerate(arguments or (json.dumps({"city": city}),), 2)
    ]
    answer = whole(None, finish="tool_calls")
    answer["choices"][0]["message"]["tool_calls"] = calls
    return answer


def call_deltas(*pieces, name="get_weather"):
    """Return the deltas of a call, with the pieces of its arguments."""
    begin = {"index": 0, "id": "call_2", "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        {"tool_calls": [begin]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in pieces),
    ]


def streamed(*deltas, finish="stop"):
    head = {**HEAD, "object": "chat.completion.chunk"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in ({"role": "assistant"}, *deltas)]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    return [*({**head, "choices": [choice]} for choice in choices), {**head, "choices": [], "usage": USAGE}]


def short(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def outcomes(data):
    """Return all that a tally counts of a record that is judged, None if it is no exchange that can be judged."""
    found = []
    for record in read_line(Line(offset=0, number=1, data=data), READING.form, name="log@0"):
        judged = _judge(record, PLACE, READING, by_needle=False)
        if not isinstance(judged, tuple) or not isinstance(judged[0], JudgedExchange):
            return None
        one, _ = judged
        applied = [(result.check, result.outcome, result.evidence) for result in one.results]
        aside = sorted((result.check, result.reason) for shared in one.shared_results for result in shared)
        source = {name: value for name, value in one.source.items() if name not in {"started", "day", "provider"}}
        found.append((applied, aside, source))
    return found


def sighting(data):
    """Return the shell of a record, its outline and its features, None unless it is plain."""
    shell = read_shell(data)
    outline = find_outline(shell) if shell is not None else None
    features = find_features(outline, shell.leaves) if outline is not None else None
    return None if features is None else (shell, outline, features)


def key_of(shell, outline, features):
    """Return all that the outcomes depend on."""
    return (shell.text, features, *[shell.leaves[place] for place in outline.models])


def model_record(shell, outline, features):
    """Return the simplest record with this shell, these models and these features."""
    total = len({"prompt_tokens", "completion_tokens"} & outline.usage.keys())
    leaves = {place: str(total if name == "total_tokens" else 1) for name, place in outline.usage.items()}
    leaves |= {place: shell.leaves[place] for place in outline.models}
    leaves |= dict.fromkeys(outline.content, "Good morning.") | dict.fromkeys(outline.thought, "Morning it is.")
    leaves |= dict.fromkeys((*outline.questions, *outline.instructions, *outline.earlier), "Hello.")
    if features:
        leaves[(*outline.questions, *outline.instructions, *outline.results)[0]] = (
            "Q: Hi." if "t" in features else "Hi."
        ) + " UTF-8" * ("c" in features)

    leaves |= dict.fromkeys(outline.results, "Hello.") | dict.fromkeys(outline.given, "{}")
    for call in outline.calls:
        leaves |= simplest_arguments(call, shell.leaves)

    arguments = {*outline.given, *(piece for call in outline.calls for piece in call.arguments)}

    def write(placeholder):
        kind, leaf = placeholder[1], int(placeholder[2])
        if leaf in arguments:
            is_within_text = len(kind) > 1 or placeholder.string.endswith('\\"', 0, placeholder.start())
            written = json.dumps(leaves[leaf])[1:-1]
            return f'{kind[1:]}"' * kind.startswith("q") + (json.dumps(written)[1:-1] if is_within_text else written)
        usual = "1750000000" if kind == "n" and len(shell.leaves[leaf]) > 8 else "1" if kind == "n" else f"name-{leaf}"
        return f'{kind[1:]}"' * kind.startswith("q") + leaves.get(leaf, usual)

    return PLACEHOLDER.sub(write, shell.text).encode()


def simplest_arguments(call, leaves):
    """Return simple arguments that fit the schema of a call, by the leaves that are their pieces."""
    places = [piece for piece in call.arguments if isinstance(piece, int)]
    whole = "".join(piece if isinstance(piece, str) else leaves[piece] for piece in call.arguments)
    usual = [
        {},
        {name: "a" if isinstance(value, str) else value for name, value in (parse_object(whole) or {}).items()},
    ]
    found = next((value for value in usual if call.find_violation(value) is None), None)
    text = json.dumps(found)
    if found is None or len(places) != len([piece for piece in call.arguments if piece != ""]) or len(places) > 2:
        return {place: leaves[place] for place in places}
    return dict(zip(places, (text,) if len(places) == 1 else (text[:-1], text[-1]), strict=True))


def as_records(asked, answer, events=None, write=json.dumps):
    """Yield a pair as the lines that logs have of it: the answer as JSON, and as a text."""
    if events is None:
        yield write({"request": asked, "response": answer}).encode("utf-8", "replace")
        yield write({"request": asked, "response": write(answer)}).encode("utf-8", "replace")
    else:
        yield write({"request": asked, "response": events}).encode("utf-8", "replace")
        sse = "".join(f"data: {write(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        yield write({"request": asked, "response": sse}).encode("utf-8", "replace")


def texts_alone(x, write):
    """Yield the records of a plain exchange with the texts of another one, whatever else that has."""
    answer = x.answers[0] if x.answers else None
    if answer is None or x.turn is None:
        return
    content = answer.longest_text("content")
    thought = answer.longest_text("reasoning")
    messages = []
    for message in x.messages:
        role, said = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role in {"system", "developer", "user", "assistant"} and isinstance(said, str):
            messages.append({"role": role, "content": said})
    tools = {"tools": x.tools} if x.tools else {}
    asked = {"model": "gpt-oss-20b", "messages": messages or [{"role": "user", "content": "Hi"}], **tools}
    told = {"role": "assistant", "content": content, **({"reasoning": thought} if thought else {})}
    details = {"reasoning_tokens": 5 if thought.strip() else 0}
    usage = {"prompt_tokens": 60, "completion_tokens": 900, "total_tokens": 960, "completion_tokens_details": details}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_750_000_000, "model": "gpt-oss-20b"}
    choice = {"index": 0, "message": told, "finish_reason": "stop"}
    yield from as_records(asked, {**whole, "choices": [choice], "usage": usage}, write=write)
    pieces = [{"role": "assistant", "content": ""}, *cut("reasoning", thought), *cut("content", content), {}]
    chunk = {**whole, "object": "chat.completion.chunk"}
    events = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]}
        for delta in pieces
    ]
    yield from as_records({**asked, "stream": True}, None, [*events, {**chunk, "choices": [], "usage": usage}], write)


def cut(name, text):
    return [{name: piece} for piece in re.findall(r"\s*\S{1,6}|\s+\Z", text)]


def _lines_of(x):
    write = short if len(x.request.body) % 2 else json.dumps
    yield from texts_alone(x, write)
    if x.api == "chat" and x.response is not None and isinstance(x.request.json, dict):
        if x.events is None:
            if isinstance(x.response_json, dict):
                yield from as_records(x.request.json, x.response_json, write=write)
        else:
            yield from as_records(
                x.request.json, None, [event.value for event in x.events.events if event.value is not None], write
            )


@cache
def golden_records():
    return tuple(
        line
        for example in examples(ROOT / "golden" / "exchanges")
        for x in example.series.exchanges.values()
        for line in _lines_of(x)
    )


@cache
def generated_records(number):
    sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "audit")]
    try:
        from generate import records
    finally:
        del sys.path[:2]
    return tuple(line.rstrip(b"\n") for line, _ in islice(records(7, 0.3, 0.3), number))


@cache
def reported_records(name):
    with gzip.open(ROOT / "reports" / name / "exchanges.jsonl.gz", "rt", encoding="utf-8") as lines:
        recorded = [read_exchange(value) for value in map(json.loads, lines) if "request" in value]
    return tuple(line for x in recorded for line in _lines_of(x))
