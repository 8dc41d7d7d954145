"""Compare what huggingface_hub, the official client, reads of the real router with the script: both of its clients, whole and streamed.

usage: client.py URL
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from inspect import isawaitable
from typing import Any

from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError, UnknownError, ValidationError

from harmony_conformance.engines.teleprompter.script import write_script
from harmony_ref import encode_with_special_tokens

ANSWER = (
    "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>final<|message|>Hello, Zoë!<|return|>"
)
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
JSON = '<|channel|>final<|message|>{"n": 7}<|return|>'
SHOWN = "analysisSimple.assistantfinalHello, Zoë!"
IDS = encode_with_special_tokens(ANSWER)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Current weather of a city.", "parameters": CITY},
}
UNDESCRIBED = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "number", "schema": SCHEMA}}
TOO_LONG = "a " * 140_000

Client = Any  # InferenceClient or AsyncInferenceClient, which share every name, and no type
Answer = Any  # a whole answer, or its parts, as either client returns it
Option = Any
Results = dict[str, object]


async def collected(answer: Answer) -> Answer:
    """Return a whole answer, or the list of a stream's parts, of either client."""
    answer = await answer if isawaitable(answer) else answer
    if isinstance(answer, AsyncIterable):
        return [part async for part in answer]
    return list(answer) if isinstance(answer, Iterator) else answer


async def refused(answer: Callable[[], Answer]) -> tuple[type[Exception], str] | None:
    """Return the kind and the text of the exception that the client raises, none if it raises none."""
    try:
        await collected(answer())
    except (HfHubHTTPError, UnknownError, ValidationError) as error:
        return type(error), str(error)
    return None


def asked(markup: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Hi." + write_script(encode_with_special_tokens(markup))}]


def rendered(markup: str) -> str:
    return f"<|start|>user<|message|>{asked(markup)[0]['content']}<|end|><|start|>assistant"


def contents(parts: list[Answer]) -> str:
    return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)


async def chats(client: Client) -> Results:
    options = {"max_tokens": 60, "temperature": 0.5, "seed": 1}
    whole = await collected(client.chat_completion(asked(ANSWER), **options))
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    parts = await collected(client.chat_completion(asked(ANSWER), **options, **usage))
    cut = await collected(client.chat_completion(asked(ANSWER), max_tokens=4))
    cut_parts = await collected(client.chat_completion(asked(ANSWER), max_tokens=4, stream=True))
    stopped = await collected(client.chat_completion(asked(ANSWER), max_tokens=60, stop=["Hello"]))
    [choice] = (await collected(client.chat_completion(asked(ANSWER), max_tokens=4, logprobs=True))).choices
    text = [{"role": "user", "content": [{"type": "text", "text": asked(ANSWER)[0]["content"]}]}]
    in_parts = await collected(client.chat_completion(text, max_tokens=60))
    formats = {
        name: (await collected(client.chat_completion(asked(JSON), response_format=one, max_tokens=40))).choices[0]
        for name, one in {"a schema": FORMAT, "TGI's form": {"type": "json", "value": SCHEMA}}.items()
    }
    return {
        "chat": whole.choices[0].message.content == SHOWN,
        "chat, end": (whole.choices[0].finish_reason, whole.choices[0].message.role) == ("stop", "assistant"),
        "chat, tokens": whole.usage.completion_tokens == len(IDS),
        "chat, usage adds up": whole.usage.total_tokens == whole.usage.prompt_tokens + len(IDS),
        "chat, streamed": contents(parts) == SHOWN,
        "chat, streamed, token by token": len([part for part in parts if part.choices]) == len(IDS),
        "chat, streamed, end": [part.choices[0].finish_reason for part in parts if part.choices][-2:] == [None, "stop"],
        "chat, streamed, tokens": vars(parts[-1].usage) == vars(whole.usage),
        "chat, cut": (cut.choices[0].finish_reason, cut.choices[0].message.content) == ("length", "analysisSimple"),
        "chat, cut, streamed": (contents(cut_parts), cut_parts[-1].choices[0].finish_reason)
        == ("analysisSimple", "length"),
        "chat, stop string": (stopped.choices[0].finish_reason, stopped.choices[0].message.content)
        == ("stop_sequence", SHOWN.partition(", Zoë")[0]),
        "chat, log probabilities": [(one.token, one.logprob) for one in choice.logprobs.content]
        == [("<|channel|>", 0.0), ("analysis", 0.0), ("<|message|>", 0.0), ("Simple", 0.0)],
        "chat, parts of a text": in_parts.choices[0].message.content == SHOWN,
        **{f"chat, {name}": json.loads(one.message.content) == {"n": 7} for name, one in formats.items()},
    }


async def calls(client: Client) -> Results:
    results: Results = {}
    named = {"type": "function", "function": {"name": "get_weather"}}
    for name, choice in {"auto": "auto", "required": "required", "named": named}.items():
        options = {"tools": [WEATHER], "tool_choice": choice, "max_tokens": 80}
        [whole] = (await collected(client.chat_completion(asked(CALL), **options))).choices
        parts = await collected(client.chat_completion(asked(CALL), stream=True, **options))
        deltas = [call.function for part in parts for call in part.choices[0].delta.tool_calls or ()]
        [call] = whole.message.tool_calls
        arguments = "".join(delta.arguments for delta in deltas)
        results |= {
            f"call, {name}": (call.function.name, json.loads(call.function.arguments))
            == ("get_weather", {"city": "Paris"}),
            f"call, {name}, alone": (whole.message.content, call.type, call.id) == (None, "function", "0"),
            f"call, {name}, streamed": (deltas[0].name, json.loads(arguments)) == ("get_weather", {"city": "Paris"}),
            f"call, {name}, streamed, one name": [delta.name for delta in deltas[1:]] == [None] * (len(deltas) - 1),
        }
    for name, choice in {"none": "none", "auto": "auto"}.items():
        options = {"tools": [WEATHER], "tool_choice": choice, "max_tokens": 60}
        [whole] = (await collected(client.chat_completion(asked(ANSWER), **options))).choices
        parts = await collected(client.chat_completion(asked(ANSWER), stream=True, **options))
        results |= {
            f"no call, {name}": (whole.message.content, whole.message.tool_calls) == (SHOWN, None),
            f"no call, {name}, streamed": contents(parts) == SHOWN,
        }
    return results


async def continuations(client: Client) -> Results:
    # the client asks at `/`, where TGI's default is the prompt with the answer
    options = {"return_full_text": False, "max_new_tokens": 60}
    prompt = rendered(ANSWER)
    whole = await collected(client.text_generation(prompt, details=True, decoder_input_details=True, **options))
    text = await collected(client.text_generation(prompt, **options))
    full = await collected(client.text_generation(prompt, max_new_tokens=60))
    parts = await collected(client.text_generation(prompt, details=True, stream=True, **options))
    texts = await collected(client.text_generation(prompt, stream=True, **options))
    stopped = await collected(client.text_generation(prompt, details=True, stop=["Hello"], **options))
    cut = await collected(client.text_generation(prompt, details=True, return_full_text=False, max_new_tokens=4))
    pattern = {"type": "regex", "value": "[ab]{2}"}
    matched = await collected(
        client.text_generation(rendered("<|channel|>final<|message|>ab<|return|>"), grammar=pattern, **options)
    )
    as_schema = {"type": "json", "value": SCHEMA}
    constrained = await collected(client.text_generation(rendered(JSON), grammar=as_schema, **options))
    details = whole.details
    return {
        "continuation": whole.generated_text == SHOWN,
        "continuation, text alone": text == SHOWN,
        "continuation, with the prompt": full.endswith(SHOWN) and len(full) > len(SHOWN),
        "continuation, ids": [token.id for token in details.tokens] == IDS,
        "continuation, end": (details.finish_reason, details.generated_tokens) == ("eos_token", len(IDS)),
        "continuation, special tokens": [token.id for token in details.tokens if token.special]
        == [one for one in IDS if one >= 199998],
        "continuation, prompt": [token.id for token in details.prefill] == encode_with_special_tokens(prompt),
        "continuation, streamed": [part.token.id for part in parts] == IDS,
        "continuation, streamed, text": parts[-1].generated_text == SHOWN,
        "continuation, streamed, end": (parts[-1].details.finish_reason, parts[-1].details.generated_tokens)
        == ("eos_token", len(IDS)),
        "continuation, streamed, texts alone": "".join(texts) == ANSWER,
        "continuation, stop string": (stopped.details.finish_reason, stopped.generated_text)
        == ("stop_sequence", SHOWN.partition(", Zoë")[0]),
        "continuation, cut": (cut.details.finish_reason, cut.generated_text) == ("length", "analysisSimple"),
        "continuation, schema": json.loads(constrained) == {"n": 7},
        "continuation, pattern": matched == "ab",
    }


async def refusals(client: Client) -> Results:
    def ask(*arguments: Option, **options: Option) -> Awaitable[tuple[type[Exception], str] | None]:
        return refused(lambda: client.text_generation(*arguments, **options))

    def chat(*arguments: Option, **options: Option) -> Awaitable[tuple[type[Exception], str] | None]:
        return refused(lambda: client.chat_completion(*arguments, **options))

    wrong_grammar = {"type": "json", "value": {"type": "strnig"}}
    unknown = {"type": "function", "function": {"name": "unknown"}}
    expected = {
        "no new token": (ask("Hi.", max_new_tokens=0), ValidationError, "`max_new_tokens` must be strictly positive"),
        "no new token, streamed": (
            ask("Hi.", max_new_tokens=0, stream=True),
            ValidationError,
            "`max_new_tokens` must be strictly positive",
        ),
        "an empty prompt": (ask(""), ValidationError, "`inputs` cannot be empty"),
        "an invalid grammar": (ask("Hi.", grammar=wrong_grammar), ValidationError, "grammar is not valid"),
        "a prompt that is too long": (ask(TOO_LONG), ValidationError, "must be <= 131072"),
        "a chat that is too long": (chat([{"role": "user", "content": TOO_LONG}]), HfHubHTTPError, "<= 131072"),
        "a chat of no token": (chat(asked(ANSWER), max_tokens=0), HfHubHTTPError, "'422 Unprocessable Entity'"),
        "a chat without messages": (chat([]), HfHubHTTPError, "Template error: undefined value"),
        "a function without a description": (
            chat(asked(ANSWER), tools=[UNDESCRIBED]),
            HfHubHTTPError,
            "Template error: invalid operation",
        ),
        "a function that is not declared": (
            chat(asked(CALL), tools=[WEATHER], tool_choice=unknown),
            HfHubHTTPError,
            "Tool with name unknown not found",
        ),
        # TGI sends an error of a streamed chat as an object, in which the client looks for no `error_type`
        "a temperature below 0, streamed": (
            chat(asked(ANSWER), temperature=-1.0, stream=True),
            UnknownError,
            "`temperature` must be strictly positive",
        ),
    }
    return {
        f"refused: {name}": (error := await request) is not None and issubclass(error[0], kind) and words in error[1]
        for name, (request, kind, words) in expected.items()
    }


async def run(url: str) -> Results:
    """Run each part with either client."""
    results: Results = {}
    async with AsyncInferenceClient(url, timeout=60) as concurrent:
        for name, client in {"sync": InferenceClient(url, timeout=60), "async": concurrent}.items():
            for part in (chats, calls, continuations, refusals):
                results |= {f"{name}: {what}": passed for what, passed in (await part(client)).items()}
        several = await asyncio.gather(
            *(concurrent.chat_completion(asked(ANSWER), max_tokens=limit) for limit in range(1, 9))
        )
    limits = [one.usage.completion_tokens for one in several]
    return {**results, "async: eight chats at once": limits == list(range(1, 9))}


def main() -> None:
    """Print what came out of each call, and exit with 1 if something else was expected."""
    results = asyncio.run(run(sys.argv[1]))
    print(json.dumps(results, indent=1, ensure_ascii=False))
    wrong = [name for name, passed in results.items() if passed is not True]
    print(f"{len(results)} assertions, {len(wrong)} failed", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
