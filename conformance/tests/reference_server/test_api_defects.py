"""Each defect of an API beside Chat Completions shows what its summary says, and the server without it does not."""

import asyncio
import json

import httpx
import pytest

from harmony_conformance.reference_server import DEFECTS, MODEL, SURFACE_DEFECTS, create_app
from harmony_conformance.reference_server.defects import api_surfaces, raw_continuation, responses, sglang
from harmony_ref import decode, encode_with_special_tokens

OF_RESPONSES = {defect.id for defect in responses.DEFECTS}

START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Hm.<|end|>{START}"
FINAL = "<|channel|>final<|message|>Good day.<|return|>"
BLANK = "<|channel|>final<|message|>Good day. <|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
PYTHON = {"type": "code_interpreter", "container": {"type": "auto"}}
CODE = "<|channel|>analysis to=python code<|message|>print(1)<|call|>"
TWO_CODES = CODE.replace("<|call|>", "<|end|>") + START + CODE
TWO_CALLS = CALL.replace("<|call|>", "<|end|>") + START + CALL
LONG_TEXT = "One more line of the report.\n" * 11_000
LONG_INPUT = [*({"role": "user", "content": LONG_TEXT},) * 2, {"role": "user", "content": "Which?"}]
FLAT = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
NESTED = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
DASH = {"type": "function", "function": {"name": "web-search"}}
USER = {"role": "user", "content": "x"}
THOUGHT = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
SUMMARY = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
PAST = {
    "role": "assistant",
    "content": "",
    "thinking": "Hm.",
    "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
}
CHAT_PAST = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


class Server:
    def __init__(self, *defects):
        self._app = create_app(defects=defects, now=lambda: 0.0)

    def send(self, path, body):
        async def sent():
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://reference") as client:
                return await client.post(path, json={"model": MODEL, "return_token_ids": True, **body})

        return asyncio.run(sent())

    def responses(self, **body):
        return self.send("/v1/responses", {"input": "x", **body})

    def logprobs(self):
        told = self.responses(include=["message.output_text.logprobs"], harmony_script=FINAL)
        return [entry["token"] for entry in items(told)[0]["content"][0]["logprobs"]]

    def ollama(self, **body):
        return self.send("/api/chat", {"messages": [USER], "stream": False, **body})

    def tgi(self, **body):
        return self.send("/tgi/v1/chat/completions", {"messages": [USER], **body})

    def lines(self, **body):
        return self.send("/api/chat", {"messages": [USER], **body}).text.splitlines()

    def generate(self, **body):
        return self.send("/api/generate", {"prompt": "x", "stream": False, "harmony_script": FINAL, **body}).json()

    def details(self, **parameters):
        asked = {"inputs": "x", "parameters": {"details": True, **parameters}, "harmony_script": THINK + FINAL}
        return self.send("/generate", asked).json()["details"]

    def indexes(self):
        asked = {"inputs": "x", "parameters": {"details": True}, "harmony_script": THINK + FINAL}
        blocks = self.send("/generate_stream", asked).text.removesuffix("\n\n").split("\n\n")
        return [json.loads(block.removeprefix("data:"))["index"] for block in blocks]

    def completions(self, **body):
        return self.send("/v1/completions", {"prompt": "A: ", "max_tokens": 64, "harmony_script": BLANK, **body}).json()

    def sglang(self, **body):
        asked = {"text": "A: ", "sampling_params": {"max_new_tokens": 64}, "harmony_script": BLANK, **body}
        return self.send("/sglang/generate", asked)

    def separated(self, text):
        return self.send("/separate_reasoning", {"text": text, "reasoning_parser": "gpt-oss"}).json()

    def parsed(self, text, name="f"):
        tools = [{"type": "function", "function": {"name": name}}]
        asked = {"text": text, "tools": tools, "tool_call_parser": "gpt-oss"}
        return self.send("/parse_function_call", asked).json()["calls"]

    def events(self, **body):
        text = self.responses(stream=True, **body).text
        return [json.loads(block.partition("data: ")[2]) for block in text.removesuffix("\n\n").split("\n\n")]


def prompt(response):
    return decode(response.json()["prompt_token_ids"])


def ends_with_the_prompt(told):
    return told["context"] == told["prompt_token_ids"]


def missing(logprobs):
    return len(logprobs["tokens"]) - len(logprobs["token_logprobs"])


def items(response):
    return response.json()["output"]


def told(server):
    return [event["type"] for event in server.events(harmony_script=FINAL)]


SHOWN = {
    "responses-stream-breaks-at-calls": (
        lambda s: [event["type"] for event in s.events(tools=[FLAT], harmony_script=CALL)][-1],
        "error",
    ),
    "responses-items-bare": (
        lambda s: START + "<|message|>Hm.<|end|>" in prompt(s.responses(input=[USER, THOUGHT, CALLED])),
        True,
    ),
    "responses-usage-zero": (lambda s: s.responses().json()["usage"]["output_tokens"], 0),
    "responses-call-without-name": (
        lambda s: [event["item"]["name"] for event in s.events(tools=[FLAT], harmony_script=CALL) if "item" in event],
        [None],
    ),
    "responses-output-empty-when-cut": (lambda s: items(s.responses(harmony_script=THINK, max_output_tokens=4)), []),
    "responses-reasoning-as-output-text": (
        lambda s: items(s.responses(harmony_script=THINK + FINAL))[0]["content"][0]["type"],
        "output_text",
    ),
    "responses-reasoning-text-unread": (
        lambda s: "Hm." in prompt(s.responses(input=[USER, THOUGHT, CALLED])),
        False,
    ),
    "responses-summary-500": (lambda s: s.responses(input=[USER, SUMMARY, CALLED]).status_code, 500),
    "responses-reasoning-tokens-zero": (
        lambda s: s.responses(harmony_script=THINK + FINAL).json()["usage"]["output_tokens_details"][
            "reasoning_tokens"
        ],
        0,
    ),
    "responses-object-bare": (lambda s: "object" in s.responses().json(), False),
    "responses-completed-when-cut": (
        lambda s: s.events(harmony_script=THINK, max_output_tokens=4)[-1]["type"],
        "response.completed",
    ),
    "responses-logprobs-ignored": (lambda s: s.logprobs(), []),
    "responses-logprobs-shifted": (lambda s: s.logprobs(), [" day", "."]),
    "responses-ids-repeated": (
        lambda s: len({item["id"] for item in items(s.responses(harmony_script=THINK + FINAL))}),
        1,
    ),
    "responses-numbered-from-one": (lambda s: [event["sequence_number"] for event in s.events()][:2], [1, 2]),
    "responses-parts-not-announced": (lambda s: "response.content_part.added" in told(s), False),
    "responses-texts-not-ended": (lambda s: "response.output_text.done" in told(s), False),
    "responses-output-index-missing": (lambda s: any("output_index" in event for event in s.events()), False),
    "responses-announced-one-before": (
        lambda s: [event["output_index"] for event in s.events(harmony_script=FINAL) if "output_index" in event][::7],
        [-1, 0],
    ),
    "responses-last-piece-as-text": (
        lambda s: [event["text"] for event in s.events(harmony_script=FINAL) if "text" in event],
        ["."],
    ),
    "responses-last-output-empty": (lambda s: s.events(harmony_script=FINAL)[-1]["response"]["output"], []),
    "responses-call-id-changes": (
        lambda s: len({e["item"]["call_id"] for e in s.events(harmony_script=CALL, tools=[FLAT]) if "item" in e}),
        2,
    ),
    "responses-id-changes": (
        lambda s: [len(e["response"]["id"]) for e in s.events(harmony_script=FINAL) if "response" in e],
        [38, 37, 37],
    ),
    "responses-thoughts-last": (
        lambda s: [item["type"] for item in s.responses().json()["output"]],
        ["message", "reasoning"],
    ),
    "responses-previous-unread": (
        lambda s: (
            "Good day." in prompt(s.responses(previous_response_id=s.responses(harmony_script=FINAL).json()["id"]))
        ),
        False,
    ),
    "responses-streams-unasked": (
        lambda s: s.responses(harmony_script=FINAL).headers["content-type"].partition(";")[0],
        "text/event-stream",
    ),
    "responses-built-in-left-out": (lambda s: items(s.responses(tools=[PYTHON], harmony_script=CODE)), []),
    "responses-input-cut-silently": (lambda s: s.responses(input=LONG_INPUT).status_code, 200),
    "responses-truncation-ignored": (lambda s: s.responses(input=LONG_INPUT, truncation="auto").status_code, 400),
    "responses-newest-items-dropped": (
        lambda s: "Which?" in prompt(s.responses(input=LONG_INPUT, truncation="auto")),
        False,
    ),
    "responses-default-parameters": (
        lambda s: (
            (told := s.responses(metadata={"a": "b"}, truncation="auto").json())["truncation"] + str(told["metadata"])
        ),
        "disabled{}",
    ),
    "responses-tool-limit-ignored": (
        lambda s: len(items(s.responses(tools=[PYTHON], max_tool_calls=1, harmony_script=TWO_CODES))),
        2,
    ),
    "responses-tool-limit-on-functions": (
        lambda s: len(items(s.responses(tools=[FLAT], max_tool_calls=1, harmony_script=TWO_CALLS))),
        1,
    ),
    "ollama-header-as-name": (
        lambda s: s.ollama(tools=[NESTED], harmony_script=CALL).json()["message"]["tool_calls"][0]["function"]["name"],
        "assistant<|channel|>analysis",
    ),
    "ollama-think-ignored": (lambda s: "Reasoning: high" in prompt(s.ollama(think="high")), False),
    "ollama-names-underscored": (lambda s: "type web_search " in prompt(s.ollama(tools=[DASH])), True),
    "ollama-thinking-unread": (
        lambda s: "Hm." in prompt(s.ollama(messages=[USER, PAST, {"role": "tool", "tool_name": "f", "content": "x"}])),
        False,
    ),
    "ollama-prompt-count-missing": (lambda s: "prompt_eval_count" in s.ollama().json(), False),
    "ollama-all-in-thinking": (
        lambda s: s.ollama(harmony_script=FINAL).json()["message"],
        {"role": "assistant", "content": "", "thinking": "Good day."},
    ),
    "tgi-channels-in-content": (
        lambda s: s.tgi(harmony_script=THINK + FINAL).json()["choices"][0]["message"]["content"],
        "analysisHm.assistantfinalGood day.",
    ),
    "tgi-results-refused": (
        lambda s: s.tgi(messages=[USER, CHAT_PAST, {"role": "tool", "tool_call_id": "c", "content": "x"}]).status_code,
        422,
    ),
    "tgi-tool-prompt": (lambda s: "Given the functions available" in prompt(s.tgi(tools=[NESTED])), True),
    "tgi-effort-ignored": (lambda s: "Reasoning: high" in prompt(s.tgi(reasoning_effort="high")), False),
    "tgi-header-counts-characters": (
        lambda s: s.tgi().headers["x-prompt-tokens"] == s.tgi().headers["x-compute-characters"],
        True,
    ),
    "ollama-lines-as-events": (lambda s: {line[:6] for line in s.lines()}, {"data: "}),
    "ollama-done-on-every-line": (lambda s: {json.loads(line)["done"] for line in s.lines()}, {True}),
    "ollama-arguments-as-text": (
        lambda s: s.ollama(tools=[NESTED], harmony_script=CALL).json()["message"]["tool_calls"][0]["function"][
            "arguments"
        ],
        '{"a":1}',
    ),
    "ollama-context-without-the-answer": (
        lambda s: ends_with_the_prompt(s.generate()),
        True,
    ),
    "ollama-refusals-in-objects": (lambda s: "message" in s.ollama(think="very").json()["error"], True),
    "tgi-markers-left-out": (lambda s: [token for token in s.details()["tokens"] if token["special"]], []),
    "tgi-always-eos": (lambda s: s.details(max_new_tokens=2)["finish_reason"], "eos_token"),
    "tgi-stream-without-done": (lambda s: "[DONE]" in s.tgi(stream=True).text, False),
    "tgi-tokens-crossed": (lambda s: s.indexes()[:4], [1, 3, 2, 4]),
    "tgi-chat-tokenize-without-the-end": (
        lambda s: s.send("/chat_tokenize", {"messages": [USER]}).json()["tokenize_response"][-1]["text"],
        "<|end|>",
    ),
    "completions-templated": (lambda s: decode(s.completions()["choices"][0]["prompt_token_ids"])[:8], "<|start|"),
    "completions-ids-without-markers": (
        lambda s: s.completions(prompt=[200006, 1428])["choices"][0]["prompt_token_ids"],
        [1428],
    ),
    "completions-text-trimmed": (lambda s: s.completions()["choices"][0]["text"], "finalGood day."),
    "completions-echo-ignored": (lambda s: s.completions(echo=True)["choices"][0]["text"], "finalGood day. "),
    "sglang-always-stopped": (
        lambda s: s.sglang(sampling_params={"max_new_tokens": 2}).json()["meta_info"]["finish_reason"],
        {"type": "stop", "matched": 200002},
    ),
    "sglang-events-of-new-text": (
        lambda s: [json.loads(line[6:])["text"] for line in s.sglang(stream=True).text.split("\n\n")[:-2]][1:3],
        ["Good", " day"],
    ),
    "sglang-stream-without-done": (lambda s: "[DONE]" in s.sglang(stream=True).text, False),
    "sglang-reasoning-unseparated": (lambda s: s.separated(THINK + FINAL)["text"], "Hm.Good day."),
    "sglang-untyped-call-lost": (lambda s: s.parsed(THINK + CALL.replace(" <|constrain|>json", "")), []),
    "sglang-first-call-as-text": (lambda s: s.parsed(CALL), []),
    "sglang-dotted-name-lost": (lambda s: s.parsed(THINK + CALL.replace("functions.f", "functions.a.f"), "a.f"), []),
    "sglang-tokenize-with-a-beginning": (
        lambda s: s.send("/v1/tokenize", {"prompt": "<|start|>"}).json(),
        {"tokens": [199998, 200006], "count": 2, "max_model_len": 131072},
    ),
    "completions-logprobs-one-short": (
        lambda s: missing(s.completions(logprobs=1)["choices"][0]["logprobs"]),
        1,
    ),
    "completions-logprobs-shifted": (
        lambda s: s.completions(logprobs=1)["choices"][0]["logprobs"]["tokens"][-1],
        "<|channel|>",
    ),
    "completions-object-of-chat": (lambda s: s.completions()["object"], "chat.completion"),
    "completions-counted-otherwise": (
        lambda s: (usage := s.completions()["usage"])["total_tokens"] - sum(list(usage.values())[:2]),
        -1,
    ),
}


def test_every_defect_is_shown():
    assert set(SHOWN) == {
        *OF_RESPONSES,
        *SURFACE_DEFECTS,
        *(defect.id for defect in (*api_surfaces.DEFECTS, *raw_continuation.DEFECTS, *sglang.DEFECTS)),
    }
    assert not set(SURFACE_DEFECTS) & set(DEFECTS)


@pytest.mark.parametrize("ident", SHOWN)
def test_defect_shows(ident):
    look, expected = SHOWN[ident]
    assert look(Server(ident)) == expected
    assert look(Server()) != expected


@pytest.mark.parametrize(
    ("defect", "send"),
    [
        ("usage-all-zero", Server.responses),
        ("usage-all-zero", Server.ollama),
        ("finish-stop-when-cut", Server.tgi),
        ("stream-without-done", Server.responses),
    ],
)
def test_defects_of_chat_json_leave_other_apis_alone(defect, send):
    assert send(Server(defect)).text == send(Server()).text


def test_defects_of_the_prompt_hold_in_every_api():
    for send in (Server.responses, Server.ollama, Server.tgi):
        broken, right = send(Server("other-identity")), send(Server())
        assert broken.json()["prompt_token_ids"] != right.json()["prompt_token_ids"]


@pytest.mark.parametrize(
    "defect", ["specials-in-results", "specials-in-history", "specials-in-developer-message", "date-placeholder"]
)
@pytest.mark.parametrize(
    "text", ["Hello", "Hello<|start|>user<|message|>Hi<|end|>", "<|start|>user<|message|>Hi<|end|>", ""]
)
def test_a_prompt_that_does_not_begin_with_a_message_is_whole(defect, text):
    ids = tuple(encode_with_special_tokens(text))
    assert DEFECTS[defect].change.apply(ids) == ids


def test_an_effort_is_copied_into_a_whole_message_alone():
    ids = tuple(encode_with_special_tokens("Hello"))
    _, on_prompt = DEFECTS["effort-as-written"].change
    assert on_prompt.apply({"reasoning_effort": "odd"}, ids) == ids


@pytest.mark.parametrize(
    ("defect", "body"),
    [
        ("responses-texts-not-ended", {"harmony_script": FINAL}),
        ("agents-custom-input-in-json", {"harmony_script": CALL, "tools": [{"type": "custom", "name": "f"}]}),
        ("agents-custom-calls-lost", {"harmony_script": CALL, "tools": [{"type": "custom", "name": "f"}]}),
    ],
)
def test_events_that_are_not_sent_leave_no_gap_in_the_numbers_and_mend_none(defect, body):
    right = [event["sequence_number"] for event in Server(defect).events(**body)]
    wrong = [event["sequence_number"] for event in Server("responses-numbered-from-one", defect).events(**body)]
    assert right == list(range(len(right)))
    assert wrong == list(range(1, len(right) + 1))
