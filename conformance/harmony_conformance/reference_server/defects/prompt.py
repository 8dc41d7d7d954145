"""Defects of prompt construction: parts of the request are lost, added or encoded twice."""

import json
from dataclasses import replace

from harmony_conformance.json_value import JsonObject, at, items, members
from harmony_conformance.reference_server.defects.body_changes import Body, in_list, without
from harmony_conformance.reference_server.defects.message_changes import each_message, each_part
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


def _each_entry(change: Body) -> OnRequest:
    """Change each message of a request."""
    return OnRequest(in_list("messages", change))


def _without_developer(body: JsonObject) -> JsonObject:
    rest = [entry for entry in items(body.get("messages")) if at(entry, "role") != "developer"]
    return {**body, "messages": rest} if rest else body


def _only_leading_instruction(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    rest = [entry for place, entry in enumerate(messages) if place == 0 or at(entry, "role") not in INSTRUCTING]
    return {**body, "messages": rest} if rest else body


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
    places = [place for place, entry in enumerate(items(body.get("messages"))) if at(entry, "role") == "user"]
    if not body.get("tools") or not places:
        return body
    messages = [*items(body["messages"])]
    question = members(messages[places[-1]])
    if isinstance(question.get("content"), str):
        prompt = "\n---\nGiven the functions available, please respond with a JSON for a function call.\n"
        messages[places[-1]] = {**question, "content": f"{question['content']}{prompt}{json.dumps(body['tools'])}"}
    return {**body, "messages": messages}


def _unknown_effort_as_medium(body: JsonObject) -> JsonObject:
    is_known = body.get("reasoning_effort") in {"low", "medium", "high", None}
    return body if is_known else {**body, "reasoning_effort": "medium"}


def _stream_without_effort(body: JsonObject) -> JsonObject:
    return without("reasoning_effort")(body) if body.get("stream") is True else body


def _quoted(message: Message) -> Message:
    return replace(message, content=(TextContent(text=json.dumps(text_of(message), ensure_ascii=False)),))


def _arguments_twice(message: Message) -> Message:
    is_call = message.author.role is Role.ASSISTANT and message.recipient is not None
    return _quoted(message) if is_call else message


def _result_quoted(message: Message) -> Message:
    return _quoted(message) if message.author.role is Role.TOOL else message


def _result_without_recipient(message: Message) -> Message:
    return replace(message, recipient=None) if message.author.role is Role.TOOL else message


def _result_under_another_name(message: Message) -> Message:
    if message.author.role is not Role.TOOL:
        return message
    return replace(message, author=replace(message.author, name="functions.tool"))


def _final_without_channel(message: Message) -> Message:
    return replace(message, channel=None) if message.channel == "final" else message


def _without_commentary(part: Content) -> Content:
    if not isinstance(part, SystemContent) or part.channel_config is None:
        return part
    channels = tuple(channel for channel in part.channel_config.valid_channels if channel != "commentary")
    return replace(part, channel_config=replace(part.channel_config, valid_channels=channels))


def _without_tools(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    bare = each_part(lambda part: replace(part, tools=None) if isinstance(part, DeveloperContent) else part)(messages)
    return tuple(message for message in bare if message.content != (DeveloperContent(),))


def _specials_in_text(prompt: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(tokens.encode_with_special_tokens(tokens.decode(prompt)))


def _result_header_reordered(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Move ` to=assistant` in the header of each tool result behind the channel."""
    old = tokens.encode_with_special_tokens(" to=assistant<|channel|>commentary<|message|>")
    ids, place = [*prompt], 0
    while place < len(ids):
        if ids[place : place + len(old)] == old:
            new = tokens.encode_with_special_tokens("<|channel|>commentary to=assistant<|message|>")
            ids[place : place + len(old)] = new
        place += 1
    return tuple(ids)


def _call_does_not_stop(sampling: Sampling) -> Sampling:
    return replace(sampling, stopping=sampling.stopping - {tokens.CALL})


def _neighbours_script(body: JsonObject, neighbour: JsonObject) -> JsonObject:
    own = without("harmony_script")(body)
    return {**own, "harmony_script": neighbour["harmony_script"]} if "harmony_script" in neighbour else own


DEFECTS = (
    Defect(
        id="effort-ignored",
        catalogue=("V29", "T04"),
        summary="`reasoning_effort` has no effect: the prompt always contains `Reasoning: medium`.",
        change=OnRequest(without("reasoning_effort")),
    ),
    Defect(
        id="stream-ignores-effort",
        summary="`reasoning_effort` has no effect on streams: their prompt contains `Reasoning: medium`.",
        change=OnRequest(_stream_without_effort),
    ),
    Defect(
        id="unknown-effort-as-medium",
        catalogue=("V28", "O22"),
        summary="A `reasoning_effort` that Harmony does not define is accepted and becomes `medium`.",
        change=OnRequest(_unknown_effort_as_medium),
    ),
    Defect(
        id="developer-not-rendered",
        catalogue=("V31",),
        summary="Messages with the role `developer` do not reach the prompt.",
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
        change=_each_entry(without(*_REASONING)),
    ),
    Defect(
        id="reasoning-read-under-another-name",
        catalogue=("V41", "J10"),
        summary="Reasoning is returned as `reasoning` but only read from `reasoning_content` or `thinking`.",
        change=_each_entry(without("reasoning")),
    ),
    Defect(
        id="finished-reasoning-kept",
        summary="The reasoning of finished turns is never removed from the prompt.",
        change=OnHistory(tuple),
    ),
    Defect(
        id="preamble-erased-from-history",
        catalogue=("L04",),
        summary="The content of an assistant message that also has reasoning and calls is dropped.",
        change=_each_entry(_no_preamble),
    ),
    Defect(
        id="content-parts-500",
        catalogue=("J07",),
        summary="Content given as a list of parts fails with a 500, `can only concatenate str`.",
        change=_each_entry(_no_parts),
    ),
    Defect(
        id="null-content-refused",
        catalogue=("O17",),
        summary="The server rejects its own message with reasoning and content null when the client sends it back.",
        change=_each_entry(_no_null_content),
    ),
    Defect(
        id="empty-arguments-refused",
        catalogue=("O17",),
        summary="A call whose arguments are an empty string is rejected when the client sends it back.",
        change=_each_entry(_no_empty_arguments),
    ),
    Defect(
        id="empty-calls-500",
        catalogue=("J06", "M11"),
        summary="An assistant message with `tool_calls` null or empty fails with a 500 of the template.",
        change=_each_entry(_no_empty_calls),
    ),
    Defect(
        id="tool-history-refused",
        catalogue=("T02",),
        summary="Any history with a tool result is rejected with an error of the template.",
        change=_each_entry(_no_history_of_calls),
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
        change=OnConversation(each_message(_arguments_twice)),
    ),
    Defect(
        id="tool-result-quoted",
        catalogue=("J02",),
        summary="Tool results appear in the prompt as JSON strings, quoted and escaped, instead of raw.",
        change=OnConversation(each_message(_result_quoted)),
    ),
    Defect(
        id="tool-result-without-recipient",
        catalogue=("V17",),
        summary="The header of a tool result lacks ` to=assistant`.",
        change=OnConversation(each_message(_result_without_recipient)),
    ),
    Defect(
        id="tool-result-under-another-name",
        catalogue=("V17",),
        summary="Tool results appear in the prompt under a name that no call has.",
        change=OnConversation(each_message(_result_under_another_name)),
    ),
    Defect(
        id="past-final-without-channel",
        catalogue=("V17",),
        summary="Past answers of the assistant appear in the prompt without `<|channel|>final`.",
        change=OnConversation(each_message(_final_without_channel)),
    ),
    Defect(
        id="commentary-no-valid-channel",
        summary="The system message lists only analysis and final as valid channels, even if functions are declared.",
        change=OnConversation(each_part(_without_commentary)),
    ),
    Defect(
        id="header-forms-mixed",
        catalogue=("V20",),
        summary="In one prompt, past calls have the recipient before the channel, tool results after it.",
        change=OnPrompt(_result_header_reordered),
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
        summary="`max_tokens` and `max_completion_tokens` do not limit the generation.",
        change=OnSampling(lambda sampling: replace(sampling, limit=None)),
    ),
    Defect(
        id="call-does-not-stop",
        catalogue=("M06",),
        summary="Generation continues after `<|call|>`.",
        change=OnSampling(_call_does_not_stop),
    ),
    Defect(
        id="cross-talk",
        summary="Of more than eight requests that are processed at the same time, one gets the answer of another.",
        change=OnNeighbour(_neighbours_script),
    ),
)
