"""Measured inputs, as data that any implementation can read: conversations in the wire form, completions as ids."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prose import prose

Json = dict[str, object]
Encode = Callable[[str], list[int]]
Decode = Callable[[list[int]], str]

START, END, RETURN, MESSAGE, CHANNEL = 200006, 200007, 200002, 200008, 200005

SYSTEM: Json = {
    "role": "system",
    "content": [
        {
            "type": "system_content",
            "model_identity": "You are ChatGPT, a large language model trained by OpenAI.",
            "reasoning_effort": "Medium",
            "knowledge_cutoff": "2024-06",
            "channel_config": {"valid_channels": ["analysis", "commentary", "final"], "channel_required": True},
        }
    ],
}
DAY: Json = {"type": "string", "description": "ISO 8601, such as 2025-06-28"}
TOOLS: Sequence[Json] = (
    {
        "name": "get_weather",
        "description": "The weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City and country"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            },
            "required": ["city"],
        },
    },
    {
        "name": "find_trains",
        "description": "Trains between two stations.\nOnly direct ones.",
        "parameters": {
            "type": "object",
            "properties": {
                "origin": {"type": "string"},
                "destination": {"type": "string"},
                "day": DAY,
                "via": {"type": "array", "items": {"type": "string"}, "description": "Stations on the way"},
            },
            "required": ["origin", "destination"],
        },
    },
    {
        "name": "convert_currency",
        "description": "Convert an amount of money.",
        "parameters": {
            "type": "object",
            "properties": {
                "amount": {"type": "number"},
                "source": {"type": "string", "description": "ISO 4217 code"},
                "target": {"type": "string", "description": "ISO 4217 code"},
            },
            "required": ["amount", "source", "target"],
        },
    },
    {
        "name": "book_table",
        "description": "Reserve a table in a restaurant.",
        "parameters": {
            "type": "object",
            "properties": {
                "restaurant": {"type": "string"},
                "guests": {"type": "integer", "default": 2},
                "day": DAY,
                "contact": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "phone": {"type": ["string", "null"], "description": "With country code"},
                    },
                    "required": ["name"],
                },
            },
            "required": ["restaurant", "day"],
        },
    },
    {"name": "current_time", "description": "The time now, in UTC."},
)


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def small_chat() -> list[Json]:
    """Return a system message and one question: about 64 tokens."""
    return [SYSTEM, user("Is it going to rain in Lisbon this weekend?")]


def five_tools() -> list[Json]:
    """Return a system message, five functions with schemas and one question: about 450 tokens."""
    functions = {"name": "functions", "tools": list(TOOLS)}
    content = {"type": "developer_content", "instructions": "Be brief.", "tools": {"functions": functions}}
    return [SYSTEM, {"role": "developer", "content": [content]}, user("What is the weather in Tokyo?")]


def chat(encode: Encode, *, characters: int, tokens: int) -> list[Json]:
    """Return alternating user and assistant messages of this number of characters and, without their headers, tokens."""
    per_character = len(encode(prose(100_000, seed=0))) / 100_000
    count = max(1, round(tokens / per_character / characters))
    texts = [prose(characters, seed=number) for number in range(count)]
    speakers: tuple[Json, Json] = ({"role": "user"}, {"role": "assistant", "channel": "final"})
    return [{**speakers[number % 2], "content": text} for number, text in enumerate(texts)]


def completion(encode: Encode, decode: Decode, *, each: int, tokens: int) -> list[int]:
    """Return a possible completion: messages of `each` tokens with their frame. It has reasoning, then one final answer."""
    headers = {channel: [CHANNEL, *encode(channel), MESSAGE] for channel in ("analysis", "final")}
    opening = [START, *encode("assistant")]
    body = encode(prose(tokens * 5, seed=1))
    run: list[int] = []
    at = 0
    while len(run) < tokens:
        last = len(run) + each >= tokens
        head = [*(opening if run else []), *headers["final" if last else "analysis"]]
        end = at + each - len(head) - 1
        while not _whole(body[at:end], decode):
            end -= 1
        run += [*head, *body[at:end], RETURN if last else END]
        at = end
    return run


def _whole(run: list[int], decode: Decode) -> bool:
    """Return True if no character is truncated. Models end their messages between characters."""
    return "\ufffd" not in decode(run)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """All measured inputs, ready for JSON.

    Attributes:
        conversations: conversations to render, by name.
        completions: completions to parse, by name.
        streams: completions to parse token by token or a few at a time, by name.
        read_each_time: completions of several lengths, by the parser's attribute that is read after every token.
        growing: a conversation that `APPENDED` makes longer.
    """

    conversations: dict[str, list[Json]]
    completions: dict[str, list[int]]
    streams: dict[str, list[int]]
    read_each_time: dict[str, list[list[int]]]
    growing: list[Json]


SIZES = (1_000, 10_000, 100_000, 1_000_000)
"""Tokens, for how the cost grows."""
TABLE_SIZE = 100_000
"""The size of the tables; one of SIZES."""
STREAM_SIZE = 10_000
READ_SIZES = (1_000, 4_000)
READ_EACH_TIME = {"current_content": None, "state": None, "messages": 200}
"""Attributes that are read after every token, and the tokens of each message; None for a single one."""
CALL_SIZES = (1, 8, 64)
"""Tokens in a call of `feed`."""

APPENDED: Json = {"role": "user", "content": "And what about the weekend after that? Would a later train be cheaper?"}


def inputs(encode: Encode, decode: Decode, *, largest: int = SIZES[-1]) -> Inputs:
    """Return all inputs, none much larger than this size."""
    sizes = [size for size in SIZES if size <= largest]
    stream = min(STREAM_SIZE, largest)
    return Inputs(
        conversations={
            "small chat": small_chat(),
            "five tools": five_tools(),
            **{f"long messages, {size}": chat(encode, characters=2_000, tokens=size) for size in sizes},
            **{f"short messages, {size}": chat(encode, characters=100, tokens=size) for size in sizes},
        },
        completions={
            **{f"one message, {size}": completion(encode, decode, each=size, tokens=size) for size in sizes},
            **{f"20-token messages, {size}": completion(encode, decode, each=20, tokens=size) for size in sizes},
        },
        streams={
            "one message": completion(encode, decode, each=stream, tokens=stream),
            "20-token messages": completion(encode, decode, each=20, tokens=stream),
        },
        read_each_time={
            attribute: [
                completion(encode, decode, each=each or min(size, largest), tokens=min(size, largest))
                for size in READ_SIZES
            ]
            for attribute, each in READ_EACH_TIME.items()
        },
        growing=chat(encode, characters=2_000, tokens=min(TABLE_SIZE, largest)),
    )
