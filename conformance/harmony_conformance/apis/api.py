"""What an API is to the judge: how a chat request is spelled in it, and how its requests and answers are read as Chat Completions.

A check is written once: it sees every exchange as the chat request and the chat completion (or chunks) that it means. What a reading can not say in
those words is the business of checks of that API alone, which see the request and the answer as they were on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString

from harmony_conformance.json_value import Json, JsonObject


class UnsupportedByApiError(Exception):
    """A chat request that the API has no words for; says which member. Completes "the API has no …"."""


class Framing(StrEnum):
    """How the API cuts a stream into events."""

    SERVER_SENT = "server-sent events"
    LINES = "a JSON value a line"


@dataclass(frozen=True, kw_only=True)
class Api:
    """One API.

    Attributes:
        name: its name in `--api`, in results and in the ids of exchanges.
        title: its name for people.
        path: where a conversation is sent; engines may serve it elsewhere.
        spell: a chat request in the API's words. It takes a `model`, `messages` and whatever else a scenario has; members that the API knows under
            the same name, or that are no API's own (`harmony_script`, `vllm_xargs`, `return_token_ids`, `seed` …), stay as they are. Raises
            `NotSpelled` where the request asks for something that the API does not have.
        asked: the chat request that a request of the API means; never raises, and leaves out what it can not read.
        whole: the `chat.completion` that an answer in one piece is, ids of tokens included where the answer has them (`prompt_token_ids` of the body,
            `token_ids` of the choice). A refusal, or a failure that the answer tells, is `{"error": …}`, beside the choices if there are any. A body
            that is no answer of the API stays as it is. Never raises.
        chunks: for the value of each event of a stream, None where it is no JSON, exactly one value: the `chat.completion.chunk` that it is, with
            `choices: []` where it tells the client nothing, `{"error": …}` where it tells a failure. The last has `usage` and `finish_reason` if
            the API tells them. What is told twice (a whole item after its deltas) is told once. Never raises.
        answer: what an answer in one piece has, in its words (`choices: […]`).
        framing: how a stream is cut.
        is_raw: whether it takes a prompt and continues it; its answers are what the model wrote, markers and all, and no message.
        option: the word of `--api` that chooses it, where that is not its name.
        arguments_are_texts: whether the arguments of a call arrive as the text that the model wrote. Otherwise they are an object, which is written anew;
            what is no object has no place in a call.
        counts_reasoning: whether its usage has a place for the number of reasoning tokens.
    """

    name: str
    title: LiteralString
    path: str
    write_request: Callable[[JsonObject], JsonObject]
    read_request: Callable[[Json], Json]
    read_response: Callable[[Json], Json]
    read_events: Callable[[Iterable[Json]], Iterator[Json]]
    answer_member: LiteralString
    framing: Framing = Framing.SERVER_SENT
    is_raw: bool = False
    option: str | None = None
    arguments_are_texts: bool = True
    counts_reasoning: bool = True

    @property
    def option_name(self) -> str:
        """The word of `--api` that chooses it."""
        return self.option or self.name


CHAT = "/v1/chat/completions"
"""The path of Chat Completions."""
