"""Compare what Ollama's official client for Python reads of the real server: every call whole and streamed, against what the model was asked to say.

usage: client.py URL MODEL
"""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ollama import ChatResponse, Client, GenerateResponse, ResponseError

from harmony_conformance.engines.teleprompter.script import write_script
from harmony_ref import encode_with_special_tokens

ANSWER = (
    "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>final<|message|>Hello, Zoë!<|return|>"
)
SHOWN = ("Simple.", "Hello, Zoë!")
CALL = (
    "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
    '<|constrain|>json<|message|>{"city": "Paris"}<|call|>'
)
JSON = '<|channel|>final<|message|>{"n": 1}<|return|>'
PIXEL = b"\x89PNG\r\n\x1a\n"
LEVELS = ("low", "medium", "high", True, False)


def script(markup: str) -> str:
    return write_script(encode_with_special_tokens(markup))


def asked(markup: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "Hi." + script(markup)}]


def get_weather(city: str) -> str:
    """Return the current weather of a city.

    Args:
        city: The name of the city.
    """
    return city


def joined(parts: Iterable[ChatResponse]) -> tuple[str, str]:
    """Return the thinking and the content of a stream."""
    messages = [part.message for part in parts]
    return "".join(one.thinking or "" for one in messages), "".join(one.content or "" for one in messages)


def refused(call: Callable[[], object]) -> int | None:
    """Return the status of the refusal that the client raises, or None."""
    try:
        call()
    except ResponseError as error:
        return error.status_code
    return None


def models(client: Client, model: str) -> dict[str, object]:
    shown = client.show(model)
    return {
        "list": [one.model for one in client.list().models] == [f"{model}:latest"],
        "show, template": "<|start|>" in (shown.template or ""),
        "show, capabilities": {"completion", "tools", "thinking"} <= set(shown.capabilities or ()),
    }


def chats(client: Client, model: str) -> dict[str, object]:
    whole = client.chat(model, asked(ANSWER), think="low", options={"temperature": 0})
    parts = list(client.chat(model, asked(ANSWER), think="low", stream=True))
    results: dict[str, object] = {
        "chat": (whole.message.thinking, whole.message.content) == SHOWN,
        "chat, end": (whole.done, whole.done_reason, whole.message.role) == (True, "stop", "assistant"),
        "chat, streamed": joined(parts) == SHOWN,
        "chat, streamed, end": [part.done for part in parts] == [False] * (len(parts) - 1) + [True],
        "chat, streamed, tokens": (parts[-1].prompt_eval_count, parts[-1].eval_count)
        == (whole.prompt_eval_count, whole.eval_count),
    }
    for level in LEVELS:
        answer = client.chat(model, asked(ANSWER), think=level).message
        results[f"chat, think {level}"] = (answer.thinking, answer.content) == SHOWN
        results[f"chat, think {level}, streamed"] = (
            joined(client.chat(model, asked(ANSWER), think=level, stream=True)) == SHOWN
        )
    cut = client.chat(model, asked(ANSWER), options={"num_predict": 8})
    results["chat, cut"] = cut.done_reason == "length"
    results["chat, format"] = json.loads(client.chat(model, asked(JSON), format="json").message.content or "") == {
        "n": 1
    }
    return results


def calls(client: Client, model: str) -> dict[str, object]:
    whole = client.chat(model, asked(CALL), tools=[get_weather]).message
    parts = list(client.chat(model, asked(CALL), tools=[get_weather], stream=True))
    streamed = [call for part in parts for call in part.message.tool_calls or ()]
    result = {"role": "tool", "tool_name": "get_weather", "content": "Sunny." + script(ANSWER)}
    after = client.chat(model, [{"role": "user", "content": "Weather?"}, whole, result], tools=[get_weather]).message
    wanted = [("get_weather", {"city": "Paris"})]
    return {
        "call": [(one.function.name, dict(one.function.arguments)) for one in whole.tool_calls or ()] == wanted,
        "call, thinking": (whole.thinking, whole.content) == ("Look it up.", ""),
        "call, streamed": [(one.function.name, dict(one.function.arguments)) for one in streamed] == wanted,
        "call, streamed, thinking": joined(parts) == ("Look it up.", ""),
        "call, result": (after.thinking, after.content, after.tool_calls) == (*SHOWN, None),
    }


def continuations(client: Client, model: str) -> dict[str, object]:
    prompt = "Hi." + script(ANSWER)
    whole = client.generate(model, prompt, think=True)
    parts: list[GenerateResponse] = list(client.generate(model, prompt, think=True, stream=True))
    streamed = "".join(part.thinking or "" for part in parts), "".join(part.response or "" for part in parts)
    rendered = f"<|start|>user<|message|>{prompt}<|end|><|start|>assistant"
    raw = client.generate(model, rendered, raw=True)
    raw_parts = client.generate(model, rendered, raw=True, stream=True)
    return {
        "generate": (whole.thinking, whole.response) == SHOWN,
        "generate, end": (whole.done, whole.done_reason) == (True, "stop"),
        "generate, streamed": streamed == SHOWN,
        "generate, streamed, end": (parts[-1].done, parts[-1].eval_count) == (True, whole.eval_count),
        "generate, raw": raw.response == ANSWER.removesuffix("<|return|>"),
        "generate, raw, streamed": "".join(part.response or "" for part in raw_parts) == raw.response,
    }


def refusals(client: Client, model: str) -> dict[str, object]:
    level: Any = "utmost"  # the client's types have the known ones alone
    picture = [{"role": "user", "content": "What is it?", "images": [PIXEL]}]
    return {
        "an image is refused": refused(lambda: client.chat(model, picture)) == 400,
        "an unknown model is refused": refused(lambda: client.chat("no-such-model", asked(ANSWER))) == 404,
        "an unknown level is refused": refused(lambda: client.chat(model, asked(ANSWER), think=level)) == 400,
    }


def unloading(client: Client, model: str) -> dict[str, object]:
    client.chat(model, asked(ANSWER), keep_alive="5m")
    loaded = [one.model for one in client.ps().models]
    client.generate(model, keep_alive=0)
    return {"ps": loaded == [f"{model}:latest"], "keep_alive 0": not client.ps().models}


def main() -> None:
    """Run each call, print what came out, and exit with 1 if something else was expected."""
    url, model = sys.argv[1:]
    client = Client(url, timeout=120)
    results: dict[str, object] = {}
    for part in (models, chats, calls, continuations, refusals, unloading):
        results.update(part(client, model))
    print(json.dumps(results, indent=1, ensure_ascii=False))
    sys.exit(not all(one is True for one in results.values()))


if __name__ == "__main__":
    main()
