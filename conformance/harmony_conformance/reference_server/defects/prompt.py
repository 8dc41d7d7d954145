"""Defects of the way from the request to the prompt: something is lost, added or encoded twice before the model sees it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.stages import (
    Defect,
    OnConversation,
    OnHistory,
    OnNeighbour,
    OnPrompt,
    OnRequest,
    OnSampling,
)
from harmony_conformance.reference_server.model.generation import Sampling
from harmony_conformance.reference_server.requests.chat_messages import INSTRUCTING
from harmony_conformance.reference_server.requests.errors import ApiError, server_failure
from harmony_ref import Content, DeveloperContent, Message, Role, SystemContent, TextContent, text_of, tokens

_REASONING = frozenset({"reasoning", "reasoning_content", "thinking"})


def _without(*names: str) -> Callable[[JsonObject], JsonObject]:
    return lambda body: {name: value for name, value in body.items() if name not in names}


def _each_message(change: Callable[[JsonObject], JsonObject]) -> Callable[[JsonObject], JsonObject]:
    """The same change of each message of a request."""

    def changed(body: JsonObject) -> JsonObject:
        if not isinstance(body.get("messages"), list):
            return body
        messages = [change(entry) if isinstance(entry, dict) else entry for entry in items(body["messages"])]
        return {**body, "messages": messages}

    return changed


def _role(entry: Json) -> Json:
    return members(entry).get("role")


def _without_developer(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    kept = [entry for entry in messages if _role(entry) != "developer"]
    return {**body, "messages": kept} if kept else body


def _only_leading_instruction(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    kept = [entry for place, entry in enumerate(messages) if place == 0 or _role(entry) not in INSTRUCTING]
    return {**body, "messages": kept} if kept else body


def _no_reasoning(entry: JsonObject) -> JsonObject:
    return _without(*_REASONING)(entry)


def _no_preamble(entry: JsonObject) -> JsonObject:
    if entry.get("tool_calls") and any(entry.get(name) for name in _REASONING):
        return {**entry, "content": None}
    return entry


def _no_parts(entry: JsonObject) -> JsonObject:
    if isinstance(entry.get("content"), list):
        raise server_failure('TypeError: can only concatenate str (not "list") to str')
    return entry


def _no_null_content(entry: JsonObject) -> JsonObject:
    if entry.get("role") == "assistant" and entry.get("content") is None and not entry.get("tool_calls"):
        raise ApiError("invalid message content type: <nil>")
    return entry


def _no_empty_arguments(entry: JsonObject) -> JsonObject:
    if any(members(members(call).get("function")).get("arguments") == "" for call in items(entry.get("tool_calls"))):
        raise ApiError("invalid tool call arguments")
    return entry


def _no_empty_calls(entry: JsonObject) -> JsonObject:
    if "tool_calls" in entry and not entry["tool_calls"]:
        raise server_failure("jinja2.exceptions.UndefinedError: list object has no element 0")
    return entry


def _no_history_of_calls(entry: JsonObject) -> JsonObject:
    if entry.get("role") == "tool":
        raise ApiError(
            "Template error: Message has tool role, but there was no previous assistant message with a tool call!"
        )
    return entry


def _tool_prompt_in_text(body: JsonObject) -> JsonObject:
    asking = [place for place, entry in enumerate(items(body.get("messages"))) if _role(entry) == "user"]
    if not body.get("tools") or not asking:
        return body
    messages = [*items(body["messages"])]
    asked = members(messages[asking[-1]])
    if isinstance(asked.get("content"), str):
        prompt = "\n---\nGiven the functions available, please respond with a JSON for a function call.\n"
        messages[asking[-1]] = {**asked, "content": f"{asked['content']}{prompt}{json.dumps(body['tools'])}"}
    return {**body, "messages": messages}


def _unknown_effort_as_medium(body: JsonObject) -> JsonObject:
    known = body.get("reasoning_effort") in {"low", "medium", "high", None}
    return body if known else {**body, "reasoning_effort": "medium"}


def _stream_without_effort(body: JsonObject) -> JsonObject:
    return _without("reasoning_effort")(body) if body.get("stream") is True else body


def _keep_all(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(messages)


def _each(change: Callable[[Message], Message]) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    return lambda messages: tuple(change(message) for message in messages)


def _quoted(message: Message) -> Message:
    return replace(message, content=(TextContent(text=json.dumps(text_of(message), ensure_ascii=False)),))


def _is_call(message: Message) -> bool:
    return message.author.role is Role.ASSISTANT and message.recipient is not None


def _arguments_twice(message: Message) -> Message:
    return _quoted(message) if _is_call(message) else message


def _result_quoted(message: Message) -> Message:
    return _quoted(message) if message.author.role is Role.TOOL else message


def _result_to_nobody(message: Message) -> Message:
    return replace(message, recipient=None) if message.author.role is Role.TOOL else message


def _result_under_another_name(message: Message) -> Message:
    if message.author.role is not Role.TOOL:
        return message
    return replace(message, author=replace(message.author, name="functions.tool"))


def _final_without_channel(message: Message) -> Message:
    return replace(message, channel=None) if message.channel == "final" else message


def _no_channel_for_calls(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(replace(message, content=tuple(map(_without_commentary, message.content))) for message in messages)


def _without_commentary(part: Content) -> Content:
    if not isinstance(part, SystemContent) or part.channel_config is None:
        return part
    kept = tuple(channel for channel in part.channel_config.valid_channels if channel != "commentary")
    return replace(part, channel_config=replace(part.channel_config, valid_channels=kept))


def _without_tools(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    bare = (
        replace(message, content=tuple(_toolless(part) for part in message.content))
        if message.author.role is Role.DEVELOPER
        else message
        for message in messages
    )
    return tuple(message for message in bare if message.content != (DeveloperContent(),))


def _toolless(part: Content) -> Content:
    return replace(part, tools=None) if isinstance(part, DeveloperContent) else part


def _specials_in_text(prompt: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(tokens.encode_with_special_tokens(tokens.decode(prompt)))


def _replaced(old: str, new: str) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """A prompt in which the tokens of one text, markers included, stand as those of another."""

    def changed(prompt: tuple[int, ...]) -> tuple[int, ...]:
        searched = tokens.encode_with_special_tokens(old)
        ids = [*prompt]
        place = 0
        while place < len(ids):
            if ids[place : place + len(searched)] == searched:
                ids[place : place + len(searched)] = tokens.encode_with_special_tokens(new)
            place += 1
        return tuple(ids)

    return changed


def _unlimited(sampling: Sampling) -> Sampling:
    return replace(sampling, limit=None)


def _call_does_not_stop(sampling: Sampling) -> Sampling:
    return replace(sampling, stopping=sampling.stopping - {tokens.CALL})


def _neighbours_script(body: JsonObject, neighbour: JsonObject) -> JsonObject:
    own = _without("harmony_script")(body)
    return {**own, "harmony_script": neighbour["harmony_script"]} if "harmony_script" in neighbour else own


_RESULT_HEADER = (" to=assistant<|channel|>commentary<|message|>", "<|channel|>commentary to=assistant<|message|>")

DEFECTS = (
    Defect(
        id="effort-ignored",
        catalogue=("V29", "T04"),
        summary="`reasoning_effort` has no effect: the prompt always says `Reasoning: medium`.",
        change=OnRequest(_without("reasoning_effort")),
    ),
    Defect(
        id="stream-ignores-effort",
        catalogue=(),
        summary="`reasoning_effort` has no effect on streamed answers: their prompt says `Reasoning: medium`.",
        change=OnRequest(_stream_without_effort),
    ),
    Defect(
        id="unknown-effort-as-medium",
        catalogue=("V28", "O22"),
        summary="A `reasoning_effort` that Harmony does not have is accepted and silently becomes medium.",
        change=OnRequest(_unknown_effort_as_medium),
    ),
    Defect(
        id="developer-not-rendered",
        catalogue=("V31",),
        summary="Messages of the role developer do not reach the prompt.",
        change=OnRequest(_without_developer),
    ),
    Defect(
        id="later-instructions-dropped",
        catalogue=("J05",),
        summary="A system or developer message that is not the first message is dropped without an error.",
        change=OnRequest(_only_leading_instruction),
    ),
    Defect(
        id="reasoning-not-passed-back",
        catalogue=("V41", "J10", "O14", "O19", "L15"),
        summary="The reasoning that a client sends back in an open tool loop never reaches the prompt.",
        change=OnRequest(_each_message(_no_reasoning)),
    ),
    Defect(
        id="reasoning-read-under-another-name",
        catalogue=("V41", "J10"),
        summary="Reasoning is returned as `reasoning` and only read as `reasoning_content` or `thinking`.",
        change=OnRequest(_each_message(_without("reasoning"))),
    ),
    Defect(
        id="finished-reasoning-kept",
        catalogue=(),
        summary="The reasoning of finished turns stays in the prompt for ever.",
        change=OnHistory(_keep_all),
    ),
    Defect(
        id="preamble-erased-from-history",
        catalogue=("L04",),
        summary="The text of an assistant message is erased when it also has reasoning and calls.",
        change=OnRequest(_each_message(_no_preamble)),
    ),
    Defect(
        id="content-parts-500",
        catalogue=("J07",),
        summary="Content given as a list of parts fails with a 500, `can only concatenate str`.",
        change=OnRequest(_each_message(_no_parts)),
    ),
    Defect(
        id="null-content-refused",
        catalogue=("O17",),
        summary="The server's own reasoning-only message, content null, is refused when it comes back.",
        change=OnRequest(_each_message(_no_null_content)),
    ),
    Defect(
        id="empty-arguments-refused",
        catalogue=("O17",),
        summary="A call whose arguments are an empty string is refused when it comes back.",
        change=OnRequest(_each_message(_no_empty_arguments)),
    ),
    Defect(
        id="empty-calls-500",
        catalogue=("J06", "M11"),
        summary="An assistant message with `tool_calls` null or empty fails with a 500 of the template.",
        change=OnRequest(_each_message(_no_empty_calls)),
    ),
    Defect(
        id="tool-history-refused",
        catalogue=("T02",),
        summary="Any history with a tool result is refused with an error of the template.",
        change=OnRequest(_each_message(_no_history_of_calls)),
    ),
    Defect(
        id="tools-in-user-text",
        catalogue=("T03",),
        summary="The declared tools are appended as JSON to the last user message.",
        change=OnRequest(_tool_prompt_in_text),
    ),
    Defect(
        id="tools-not-rendered",
        catalogue=("M14",),
        summary="The declared tools never reach the prompt.",
        change=OnConversation(_without_tools),
    ),
    Defect(
        id="arguments-encoded-twice",
        catalogue=("J01",),
        summary="The arguments of past calls, a string already, are JSON-encoded once more in the prompt.",
        change=OnConversation(_each(_arguments_twice)),
    ),
    Defect(
        id="tool-result-quoted",
        catalogue=("J02",),
        summary="Tool results stand in the prompt as JSON strings, quoted and escaped, instead of raw.",
        change=OnConversation(_each(_result_quoted)),
    ),
    Defect(
        id="tool-result-without-recipient",
        catalogue=("V17",),
        summary="The header of a tool result lacks ` to=assistant`.",
        change=OnConversation(_each(_result_to_nobody)),
    ),
    Defect(
        id="tool-result-under-another-name",
        catalogue=("V17",),
        summary="Tool results stand in the prompt under a name that no call has.",
        change=OnConversation(_each(_result_under_another_name)),
    ),
    Defect(
        id="past-final-without-channel",
        catalogue=("V17",),
        summary="Past answers of the assistant stand in the prompt without `<|channel|>final`.",
        change=OnConversation(_each(_final_without_channel)),
    ),
    Defect(
        id="commentary-no-valid-channel",
        catalogue=(),
        summary="The system message calls analysis and final the valid channels, whatever functions are declared.",
        change=OnConversation(_no_channel_for_calls),
    ),
    Defect(
        id="header-forms-mixed",
        catalogue=("V20",),
        summary="Past calls have the recipient before the channel, tool results in the same prompt behind it.",
        change=OnPrompt(_replaced(*_RESULT_HEADER)),
    ),
    Defect(
        id="special-tokens-injected",
        catalogue=("J11", "L08"),
        summary="The prompt is tokenised with special tokens recognised: markers typed by a user become control tokens.",
        change=OnPrompt(_specials_in_text),
    ),
    Defect(
        id="limit-exceeded",
        catalogue=("V38",),
        summary="`max_tokens` and `max_completion_tokens` do not bound the generation.",
        change=OnSampling(_unlimited),
    ),
    Defect(
        id="call-does-not-stop",
        catalogue=("M06",),
        summary="Generation goes on after `<|call|>`.",
        change=OnSampling(_call_does_not_stop),
    ),
    Defect(
        id="cross-talk",
        catalogue=(),
        summary="Of more than eight requests that are answered at the same time, one gets the answer of another.",
        change=OnNeighbour(_neighbours_script),
    ),
)
