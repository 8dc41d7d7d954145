"""A request that quotes markers does not switch a block off; an answer that the request explains still passes."""

import json

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import joined_request_texts
from harmony_conformance.json_value import dumps
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy import repair
from harmony_proxy.policy.policy import Action, FailMode
from harmony_proxy.repair.answer.check_verdicts import find_failures
from harmony_proxy.repair.answer.strict_leaks import request_words
from harmony_proxy.repair.answer.whole_answer import repair_answer

CHECKS = ("channels.no_marker_leak", "channels.no_channel_words", "channels.no_reasoning_in_content")
QUOTE = "quote <|channel|>analysis<|message|> please, <|end|><|start|>assistant<|channel|>final<|message|>, `assistantfinal` and <think>"
THOUGHT = "We need to answer the user: the launch code is 4711."
LEAKS = {
    "raw": f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>Hello.",
    "escaped": f"&lt;|channel|&gt;analysis&lt;|message|&gt;{THOUGHT}",
    "first marker lost": f"analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>Hello.",
    "header lost": f"{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>Hello.",
    "words": f"analysis{THOUGHT}assistantfinalHello.",
    "last words": f"{THOUGHT}assistantfinalHello.",
    "a call": 'commentary to=functions.launch json{"code":4711}',
    "tags": f"<think>{THOUGHT}</think>Hello.",
    "line break in the header": f"<|channel|>analysis\n<|message|>{THOUGHT}",
    "line breaks in the header": f"<|start|>assistant\n<|channel|>\nanalysis\n<|message|>{THOUGHT}",
    "unknown channel": f"<|channel|>thoughts<|message|>{THOUGHT}<|end|>Hello.",
    "begins with a tag": f"<|channel|>analysis<|message|><b>{THOUGHT}</b>",
    "empty message first": f"<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>analysis<|message|>{THOUGHT}",
    "no message marker": f"<|channel|>analysis {THOUGHT}<|end|>Hello.",
    "preamble": f"Sure.<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>Hello.",
    "preamble, two markers": f"Sure.<|start|>assistant<|channel|>analysis<|message|>{THOUGHT}",
}
LATE = {
    "no end marker": f"{THOUGHT}<|start|>assistant<|channel|>final<|message|>Hello.",
    "closing tag": f"{THOUGHT}</think>\n\nHello.",
    "closing tag on a line": f"{THOUGHT} Is 4711 < 5000?\n</reasoning>Hello.",
    "spaced words": f"analysis {THOUGHT} assistant final Hello.",
    "spaced words on lines": "analysis\nThe launch code is 4711.\nassistant\nfinal\nHello.",
    "last spaced words": f"{THOUGHT} assistant final Hello.",
    "words on lines": f"analysis\n\n{THOUGHT}\n\nassistantfinal\n\nHello.",
    "last words on a line": f"{THOUGHT}\nassistantfinalHello.",
}
"""Leaks whose text is out before anything shows that it is one: a stream is blocked at its end."""
ANSWERS = {
    "repeated": "<|channel|>analysis<|message|> and <|end|><|start|>assistant<|channel|>final<|message|>, as you asked.",
    "explained": "The marker `<|channel|>` stands before the channel, and `<|message|>` before the text.",
    "bare": "A header is <|start|>assistant<|channel|>final<|message|> and ends with <|end|>. The marker <|return|> ends the turn.",
    "plain": "The final channel has the answer.",
    "an example on lines": "It writes:\n\n    <|channel|>analysis<|message|>User asks: 2 + 2.<|end|>\n<|start|>assistant<|channel|>final<|message|>4.",
    "an example in quotes": 'It writes "<|channel|>analysis<|message|>User asks: 2 + 2.<|end|>" first, and then the answer, which has more words.',
    "two markers": "<|channel|> comes before <|message|>.",
    "a channel's purpose": "<|channel|>analysis is the channel of thoughts, and ends with <|end|>.",
    "a template": "We need to write <|start|>assistant<|channel|>final<|message|> before the answer.",
    "a closing tag": "We close the thought with </think> before the answer.",
    "a closing tag in code": "We write the thought.\n`</think>` ends it.",
    "a pair of tags": "We think: <think>We need to answer.</think> That is all.",
    "words": "We did the analysis. The assistant made the final table. Our assistant final exams begin today.",
    "joined words": "We did the work. The assistantfinalize function ends it.\nassistantfinalists are listed.",
}


def request(more=None, quote=QUOTE):
    body = {"model": "m", "messages": [{"role": "user", "content": quote}], **(more or {})}
    return Request(path="/v1/chat/completions", body=json.dumps(body).encode())


def exchange(content, more=None, name=None):
    calls = [{"id": "1", "type": "function", "function": {"name": name, "arguments": "{}"}}] if name else None
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    response = Response(
        status=200,
        headers={"content-type": "application/json"},
        chunks=(Chunk(arrival_time=0.1, data=dumps(body).encode()),),
    )
    return Exchange(id="1", request=request(more), response=response, api="chat")


def blocked(x, action=Action.BLOCK):
    return repair_answer(x, dict.fromkeys(CHECKS, action), fallback=Action.OBSERVE).actions.blocked_checks


def open_stream(asked):
    return repair.handlers().open_stream(
        request({"stream": True}, quote=asked),
        Response(status=200, headers={"content-type": "text/event-stream"}, chunks=()),
        "chat",
        dict.fromkeys(CHECKS, Action.BLOCK),
        fallback=Action.OBSERVE,
        request_id="1",
        limit=100_000,
        fail=FailMode.CLOSED,
    )


def streamed(pieces, asked, finish="stop"):
    """Feed each piece as an event of its own; return the stream, the content that was emitted by then, and by the end."""
    stream = open_stream(asked)
    choices = [{"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in pieces]
    choices += [{"index": 0, "delta": {}, "finish_reason": finish}] if finish else []
    out = b""
    for choice in choices:
        event = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        out += b"".join(stream.feed(b"data: " + dumps(event).encode() + b"\n\n"))
    early = contents(out)
    out += b"".join([*(stream.feed(b"data: [DONE]\n\n") if finish else stream.abort()), *stream.close()])
    return stream, early, out


def contents(out):
    events = [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: {")]
    deltas = [choice["delta"] for event in events for choice in event.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize("leak", [*LEAKS, *LATE])
def test_a_leak_is_blocked_although_the_request_quotes_markers(leak):
    x = exchange({**LEAKS, **LATE}[leak])
    assert not find_failures(x, CHECKS), "the checks themselves excuse it"
    assert blocked(x)
    assert not blocked(x, Action.REPAIR), "only blocking is stricter"


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_about_markers_passes(answer):
    assert not blocked(exchange(ANSWERS[answer]))


def test_a_marker_in_the_name_of_a_tool_is_blocked():
    assert blocked(exchange(None, name="launch<|channel|>commentary"))
    tools = [{"type": "function", "function": {"name": "launch", "parameters": {"type": "object"}}}]
    assert not blocked(exchange(None, {"tools": tools}, name="launch"))


@pytest.mark.parametrize("more", [{"skip_special_tokens": False}, {"reasoning_format": "raw"}])
def test_a_request_for_raw_text_is_no_excuse(more):
    assert blocked(exchange(LEAKS["raw"], more))


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(("leak", "ends"), [("raw", True), ("words", True), (None, False)])
def test_a_stream_is_blocked_too(leak, ends, size):
    text = LEAKS[leak] if leak else ANSWERS["explained"]
    stream, _, out = streamed([text[start : start + size] for start in range(0, len(text), size)], QUOTE)
    assert stream.is_terminated is ends
    assert (b"blocked_by_policy" in out) is ends


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
@pytest.mark.parametrize("leak", [name for name in LEAKS if name not in ("header lost", "last words")])
def test_a_stream_shows_nothing_of_the_thought(leak, size):
    text = LEAKS[leak]
    stream, _, out = streamed([text[start : start + size] for start in range(0, len(text), size)], QUOTE)
    assert stream.actions.blocked_checks
    assert "launch" not in contents(out)


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("leak", LATE)
def test_a_stream_that_shows_late_that_it_leaks_is_blocked_at_its_end(leak, size):
    text = LATE[leak]
    stream, _, out = streamed([text[start : start + size] for start in range(0, len(text), size)], QUOTE)
    assert stream.actions.blocked_checks
    assert b"blocked_by_policy" in out


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_stream_about_markers_passes(answer, size):
    text = ANSWERS[answer]
    stream, _, out = streamed([text[start : start + size] for start in range(0, len(text), size)], QUOTE)
    assert not stream.actions.blocked_checks
    assert contents(out) == text


QUOTED = {
    "raw": "<|channel|>analysis<|message|>The sky is blue.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
    "escaped": "&lt;|channel|&gt;analysis&lt;|message|&gt;The sky is &lt;b&gt;blue.&lt;|end|&gt;",
    "a call": 'commentary to=functions.launch json{"code":47}',
    "last words": "The sky is blue.assistantfinalYes, it is blue on most days.",
    "tags": "<think>We need to answer the user: yes.</think>Yes.",
}
DIVERGED = {
    "raw": (QUOTED["raw"].replace("The sky is blue", "The user wants a secret"), "The"),
    "raw, late": (QUOTED["raw"].replace("blue", "black"), "The"),
    "escaped": (QUOTED["escaped"].replace("sky", "user wants a secret"), "The"),
    "a call": ('commentary to=functions.launch json{"code":4711}', "code"),
    "last words": ("The sky is blue.assistantfinalYes, it is black.", "Yes"),
    "tags": ("<think>We need to answer the user: no.</think>Yes.", "We"),
}


def splits(text):
    """Yield the text in two pieces, at every place, and in pieces of a few sizes."""
    yield from ([text[:place], text[place:]] for place in range(1, len(text)))
    yield from ([text[start : start + size] for start in range(0, len(text), size)] for size in (1, 2, 7))


@pytest.mark.parametrize("case", DIVERGED)
def test_a_stream_that_begins_like_a_quotation_shows_nothing_of_another_text(case):
    text, withheld = DIVERGED[case]
    asked = f"Repeat this: {QUOTED[case.removesuffix(', late')]}"
    assert not find_failures(exchange(text, {"messages": [{"role": "user", "content": asked}]}), CHECKS)
    for pieces in splits(text):
        stream, early, out = streamed(pieces, asked)
        assert stream.is_terminated, pieces
        assert b"blocked_by_policy" in out, pieces
        assert withheld not in early + contents(out), pieces


@pytest.mark.parametrize("case", QUOTED)
def test_a_quotation_passes_streamed_at_every_split(case):
    for pieces in splits(QUOTED[case]):
        stream, _, out = streamed(pieces, f"Repeat this: {QUOTED[case]}")
        assert not stream.is_terminated, pieces
        assert contents(out) == QUOTED[case], pieces


def test_a_stream_is_blocked_at_the_letter_that_differs():
    text = QUOTED["raw"].replace("sky", "sun")
    pieces = [*text[: text.index("sun") + 2]]
    for given, blocked in ((pieces[:-1], ()), (pieces, ("channels.no_marker_leak",))):
        stream, early, _ = streamed(given, QUOTED["raw"], finish=None)
        assert not early
        assert stream.actions.blocked_checks == blocked


def test_a_quotation_waits_no_longer_than_its_comparison_takes():
    head, rest = QUOTED["raw"].removesuffix("Yes."), "Yes. " * 20
    _, early, _ = streamed([head, rest], QUOTED["raw"])
    assert early == head + rest
    long = "<|channel|>analysis<|message|>" + "The sky is blue. " * 20
    assert streamed([*long], long)[1].startswith(long[:240])


def test_nothing_of_a_quotation_passes_if_the_server_breaks_off():
    _, early, out = streamed(["<|channel|>analysis<|message|>The ", "sky"], QUOTED["raw"], finish=None)
    assert early + contents(out) == ""


def test_a_quotation_in_one_choice_does_not_release_a_leak_in_another():
    leak = DIVERGED["raw"][0]
    events = []
    for left, right in zip(QUOTED["raw"], leak[: len(QUOTED["raw"])], strict=False):
        events += [[{"index": 0, "delta": {"content": left}}, {"index": 1, "delta": {"content": right}}]]
    stream, out = open_stream(QUOTED["raw"]), b""
    for choices in events:
        event = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
        out += b"".join(stream.feed(b"data: " + dumps(event).encode() + b"\n\n"))
    assert contents(out) == ""
    assert stream.is_terminated


def test_the_texts_of_a_request_are_read_once_for_a_stream():
    stream = open_stream(QUOTED["raw"])
    judge = stream._judge
    first, second = judge.with_body(b""), judge.with_body(b"data: {}\n\n")
    assert joined_request_texts(first) is joined_request_texts(second)
    assert request_words(first) is request_words(second)


PLAIN_QUESTION = "What is the capital of France?"
GLUED = {
    "a search": ("", 'assistantcommentary to=browser.search code{"query":"secret"}'),
    "a command": ("", 'assistantcommentary to=container.exec json{"cmd":["secret"]}'),
    "a search behind a preamble": ("Let me look.", 'assistantcommentary to=browser.open code{"id":"secret"}'),
    "Python": ("", "assistantanalysis to=python codeprint(secret)"),
    "Python behind a preamble": ("Let me compute.", "assistantanalysis to=python codeprint(secret)"),
    "a function on another channel": ("", 'assistantanalysis to=functions.find json{"city":"secret"}'),
    "a thought on a new line": ("Paris is the capital.\n\n", "assistantanalysisThe secret user wants more."),
    "a thought behind a blank": ("Paris is the capital. ", "assistantanalysisThe secret user wants more."),
    "an answer that begins with a list": ("It is simple.", "assistantfinal- secret"),
    "an answer that begins with a table": ("It is simple.", "assistantfinal| secret |"),
    "an answer that begins with a sign": ("It is simple.", "assistantfinal\u2705 secret"),
}
"""The text before a leak, which may be shown, and the leak."""
UNGLUED = {
    "names on lines": "The names are:\nassistantfinalAnswer = 3\nassistantanalysisResult(3)",
    "a word on a line": "The words are:\nassistantfinal\nassistantanalysis\n",
    "a longer word": "They are listed.\nassistantfinalists first. assistantfinalise it.",
    "a recipient in prose": "The header has to=browser.search in it, and the assistant commentary to=be read.",
}


def asked_plainly(content):
    return exchange(content, {"messages": [{"role": "user", "content": PLAIN_QUESTION}]})


@pytest.mark.parametrize("leak", GLUED)
def test_a_glued_header_is_blocked_in_a_whole_answer(leak):
    assert blocked(asked_plainly("".join(GLUED[leak])))


@pytest.mark.parametrize("leak", GLUED)
def test_a_glued_header_is_blocked_in_a_stream_before_its_text(leak):
    before, leaked = GLUED[leak]
    text = before + leaked
    for split in range(1, len(text)):
        stream, _, out = streamed([text[:split], text[split:]], PLAIN_QUESTION)
        assert stream.actions.blocked_checks, split
        assert "secret" not in contents(out), split
    stream, _, out = streamed(list(text), PLAIN_QUESTION)
    assert stream.actions.blocked_checks
    assert "secret" not in contents(out)


@pytest.mark.parametrize("answer", UNGLUED)
def test_similar_words_pass_at_every_split(answer):
    text = UNGLUED[answer]
    assert not blocked(asked_plainly(text))
    for split in range(1, len(text)):
        stream, _, out = streamed([text[:split], text[split:]], PLAIN_QUESTION)
        assert not stream.actions.blocked_checks, split
        assert contents(out) == text, split
