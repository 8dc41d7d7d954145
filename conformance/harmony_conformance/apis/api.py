"""The interface of an API adapter: how to write a chat request in the API's format, and how to read its requests and responses.

Checks are written once, against Chat Completions: an adapter translates every request, response and stream event to that format.
Whatever an adapter cannot translate is tested by checks of that API alone, on the original request and response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString

from harmony_conformance.json_value import Json, JsonObject


class UnsupportedByApiError(Exception):
    """The API cannot express the chat request. The message names the feature and completes "the API has no …"."""


class Framing(StrEnum):
    """The division of a stream into events."""

    SERVER_SENT = "server-sent events"
    LINES = "a JSON value a line"


@dataclass(frozen=True, kw_only=True)
class Api:
    """One API that serves gpt-oss. Functions that read never raise, whatever JSON they get.

    Attributes:
        name: Identifier in results and exchange ids.
        title: Display name.
        path: The URL path for requests. Engines may use another one.
        write_request: Translate a chat request (`model`, `messages`, …) to the API's request body. Members unknown to Chat Completions
            (`harmony_script`, `vllm_xargs`, `return_token_ids`, …) pass through. Raises `UnsupportedByApiError`.
        read_request: Translate a request body of the API to a chat request. Unreadable members are omitted; a body that is no object is
            returned unchanged.
        read_response: Translate a response body that is no stream to a `chat.completion`. Token ids, if shown, become `prompt_token_ids` of
            the body and `token_ids` of the choice. An error becomes `{"error": …}`, next to partial choices if there are any. A body that is
            no response of the API is returned unchanged.
        read_events: Translate the values of a stream's events, None for an event that is not JSON. Yield exactly one value per event: a
            `chat.completion.chunk`, with `choices: []` if the event adds no output, or `{"error": …}`. The last chunk has `usage` and
            `finish_reason` if the API reports them. Text that the API repeats (a whole item after its deltas) is yielded once.
        answer_member: The member that a successful response must have, in the API's format (`choices: […]`).
        framing: The framing of streams.
        is_raw: True if the API continues a prompt and returns the raw output, not a parsed message.
        option: The value of `--api` that selects the API, or None if that is `name`.
        has_text_arguments: True if call arguments arrive as the model's text. False if they arrive as a JSON object: the spelling is
            lost then, and arguments that are no object cannot be returned.
        counts_reasoning: True if the usage has a member for reasoning tokens.
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
    has_text_arguments: bool = True
    counts_reasoning: bool = True

    @property
    def option_name(self) -> str:
        """The value of `--api` that selects the API."""
        return self.option or self.name


CHAT_PATH = "/v1/chat/completions"
"""The path of Chat Completions."""
