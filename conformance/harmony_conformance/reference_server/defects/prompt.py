"""Defects of prompt construction: parts of the request are lost, added, encoded twice, or copied without validation, markers included."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from harmony_conformance.json_value import JsonObject, items, members, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    TOOL_ROLE_REFUSED,
    BodyChange,
    drop_members,
    in_list,
)
from harmony_conformance.reference_server.defects.changes.conversation import (
    by_role,
    each_call,
    each_message,
    each_part_of,
)
from harmony_conformance.reference_server.defects.stages import (
    Defect,
    OnConversation,
    OnHistory,
    OnNeighbour,
    OnPrompt,
    OnPromptAndBody,
    OnRequest,
    OnSampling,
)
from harmony_conformance.reference_server.requests.chat_messages import INSTRUCTING
from harmony_conformance.reference_server.requests.errors import ApiError, server_failure
from harmony_ref import DeveloperContent, Message, Role, SystemContent, TextContent, text_of, tokens

_EFFORTS = frozenset({"low", "medium", "high"})
_EFFORT_LINE = "Reasoning: medium"
_DATE_LINE = "Current date: "
_USER = "<|start|>user<|message|>"
_REASONING = frozenset({"reasoning", "reasoning_content", "thinking"})


def _each_entry(change: BodyChange) -> OnRequest:
    """Change each message of a request."""
    return OnRequest(in_list("messages", change))


def _without_developer(body: JsonObject) -> JsonObject:
    rest = [entry for entry in items(body.get("messages")) if value_at(entry, "role") != "developer"]
    return {**body, "messages": rest} if rest else body


def _only_leading_instruction(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    rest = [entry for place, entry in enumerate(messages) if place == 0 or value_at(entry, "role") not in INSTRUCTING]
    return {**body, "messages": rest} if rest else body


def _no_preamble(entry: JsonObject) -> JsonObject:
    has_both = entry.get("tool_calls") and any(entry.get(name) for name in _REASONING)
    return {**entry, "content": None} if has_both else entry


def _refuse(is_refused: Callable[[JsonObject], bool], error: ApiError) -> OnRequest:
    """Fail requests with a message that `is_refused` selects."""

    def changed(entry: JsonObject) -> JsonObject:
        if is_refused(entry):
            raise error.with_traceback(None)  # one error serves all requests: its traceback must not grow
        return entry

    return _each_entry(changed)


def _has_null_content(entry: JsonObject) -> bool:
    return entry.get("role") == "assistant" and entry.get("content") is None and not entry.get("tool_calls")


def _has_empty_arguments(entry: JsonObject) -> bool:
    return any(value_at(call, "function", "arguments") == "" for call in items(entry.get("tool_calls")))


def _tool_prompt_in_text(body: JsonObject) -> JsonObject:
    places = [place for place, entry in enumerate(items(body.get("messages"))) if value_at(entry, "role") == "user"]
    if not body.get("tools") or not places:
        return body
    messages = [*items(body["messages"])]
    question = members(messages[places[-1]])
    if isinstance(question.get("content"), str):
        prompt = "\n---\nGiven the functions available, please respond with a JSON for a function call.\n"
        messages[places[-1]] = {**question, "content": f"{question['content']}{prompt}{json.dumps(body['tools'])}"}
    return {**body, "messages": messages}


def _quoted(message: Message) -> Message:
    return replace(message, content=(TextContent(text=json.dumps(text_of(message), ensure_ascii=False)),))


def _without_commentary(part: SystemContent) -> SystemContent:
    if part.channel_config is None:
        return part
    channels = tuple(channel for channel in part.channel_config.valid_channels if channel != "commentary")
    return replace(part, channel_config=replace(part.channel_config, valid_channels=channels))


def _result_header_reordered(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Move ` to=assistant` in the header of each tool result behind the channel."""
    old = tokens.encode_with_special_tokens(" to=assistant<|channel|>commentary<|message|>")
    new = tokens.encode_with_special_tokens("<|channel|>commentary to=assistant<|message|>")
    ids = [*prompt]
    for place in reversed(range(len(ids))):
        if ids[place : place + len(old)] == old:
            ids[place : place + len(old)] = new
    return tuple(ids)


def _neighbours_script(body: JsonObject, neighbour: JsonObject) -> JsonObject:
    own = drop_members("harmony_script")(body)
    return {**own, "harmony_script": neighbour["harmony_script"]} if "harmony_script" in neighbour else own


def _without_unknown_effort(body: JsonObject) -> JsonObject:
    return body if body.get("reasoning_effort") in _EFFORTS else drop_members("reasoning_effort")(body)


def _effort_as_written(sent: JsonObject, prompt: tuple[int, ...]) -> tuple[int, ...]:
    effort = sent.get("reasoning_effort")
    if not isinstance(effort, str) or effort in _EFFORTS:
        return prompt
    return _rewritten(prompt, _EFFORT_LINE, f"Reasoning: {effort}")


def _names_as_written(sent: JsonObject, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Write the `name` of each user message behind the role in its header."""
    users = [members(entry) for entry in items(sent.get("messages")) if members(entry).get("role") == "user"]
    header = tuple(tokens.encode_with_special_tokens(_USER))
    starts = [place for place in range(len(prompt)) if prompt[place : place + len(header)] == header]
    ids, position = list[int](), 0
    for start, user in zip(starts, users, strict=False):
        name = user.get("name")
        named = f"<|start|>user:{name}<|message|>" if isinstance(name, str) and name else _USER
        ids += [*prompt[position:start], *tokens.encode_with_special_tokens(named)]
        position = start + len(header)
    return (*ids, *prompt[position:])


def _rewritten(prompt: Sequence[int], old: str, new: str) -> tuple[int, ...]:
    """Replace a text in the first message of the prompt, with special tokens recognised. A raw prompt may have no whole message."""
    if tokens.END not in prompt:
        return tuple(prompt)
    end = prompt.index(tokens.END)
    return (*tokens.encode_with_special_tokens(tokens.decode(prompt[:end]).replace(old, new, 1)), *prompt[end:])


def _placeholder(prompt: tuple[int, ...]) -> tuple[int, ...]:
    system = tokens.decode(prompt[: prompt.index(tokens.END)] if tokens.END in prompt else ())
    begin = system.find(_DATE_LINE)
    if begin < 0:
        return prompt
    date = system[begin:].partition("\n")[0]
    return _rewritten(prompt, date, f'{_DATE_LINE}{{{{ strftime_now("%Y-%m-%d") }}}}')


DEFECTS = (
    Defect(
        "effort-ignored",
        "`reasoning_effort` has no effect: the prompt always contains `Reasoning: medium`.",
        OnRequest(drop_members("reasoning_effort")),
        ("V29", "T04"),
    ),
    Defect(
        "stream-ignores-effort",
        "`reasoning_effort` has no effect on streams: their prompt contains `Reasoning: medium`.",
        OnRequest(lambda body: drop_members("reasoning_effort")(body) if body.get("stream") is True else body),
    ),
    Defect(
        "unknown-effort-as-medium",
        "A `reasoning_effort` that Harmony does not define is accepted and becomes `medium`.",
        OnRequest(
            lambda body: (
                body if body.get("reasoning_effort") in (None, *_EFFORTS) else {**body, "reasoning_effort": "medium"}
            )
        ),
        ("V28", "O22"),
    ),
    Defect(
        "developer-not-rendered",
        "Messages with the role `developer` do not reach the prompt.",
        OnRequest(_without_developer),
        ("V31",),
    ),
    Defect(
        "later-instructions-dropped",
        "A system or developer message that is not the first message is dropped without an error.",
        OnRequest(_only_leading_instruction),
        ("J05",),
    ),
    Defect(
        "reasoning-not-passed-back",
        "The reasoning that a client sends back in an open tool loop never reaches the prompt.",
        _each_entry(drop_members(*_REASONING)),
        ("V41", "J10", "O14", "O19", "L15"),
    ),
    Defect(
        "reasoning-read-under-another-name",
        "Reasoning is returned as `reasoning` but only read from `reasoning_content` or `thinking`.",
        _each_entry(drop_members("reasoning")),
        ("V41", "J10"),
    ),
    Defect(
        "finished-reasoning-kept", "The reasoning of finished turns is never removed from the prompt.", OnHistory(tuple)
    ),
    Defect(
        "preamble-erased-from-history",
        "The content of an assistant message that also has reasoning and calls is dropped.",
        _each_entry(_no_preamble),
        ("L04",),
    ),
    Defect(
        "content-parts-500",
        "Content given as a list of parts fails with a 500, `can only concatenate str`.",
        _refuse(
            lambda entry: isinstance(entry.get("content"), list),
            server_failure('TypeError: can only concatenate str (not "list") to str'),
        ),
        ("J07",),
    ),
    Defect(
        "null-content-refused",
        "The server rejects its own message with reasoning and content null when the client sends it back.",
        _refuse(_has_null_content, ApiError("invalid message content type: <nil>")),
        ("O17",),
    ),
    Defect(
        "empty-arguments-refused",
        "A call whose arguments are an empty string is rejected when the client sends it back.",
        _refuse(_has_empty_arguments, ApiError("invalid tool call arguments")),
        ("O17",),
    ),
    Defect(
        "empty-calls-500",
        "An assistant message with `tool_calls` null or empty fails with a 500 of the template.",
        _refuse(
            lambda entry: "tool_calls" in entry and not entry["tool_calls"],
            server_failure("jinja2.exceptions.UndefinedError: list object has no element 0"),
        ),
        ("J06", "M11"),
    ),
    Defect(
        "tool-history-refused",
        "Any history with a tool result is rejected with an error of the template.",
        _refuse(lambda entry: entry.get("role") == "tool", ApiError(TOOL_ROLE_REFUSED)),
        ("T02",),
    ),
    Defect(
        "tools-in-user-text",
        "The declared tools are appended as JSON to the last user message.",
        OnRequest(_tool_prompt_in_text),
        ("T03",),
    ),
    Defect(
        "tools-not-rendered",
        "The declared tools never reach the prompt.",
        (
            OnConversation(each_part_of(DeveloperContent, lambda part: replace(part, tools=None))),
            OnConversation(lambda messages: tuple(one for one in messages if one.content != (DeveloperContent(),))),
        ),
        ("M14",),
    ),
    Defect(
        "arguments-encoded-twice",
        "The arguments of past calls, a string already, are JSON-encoded once more in the prompt.",
        OnConversation(each_call(_quoted)),
        ("J01",),
    ),
    Defect(
        "tool-result-quoted",
        "Tool results appear in the prompt as JSON strings, quoted and escaped, instead of raw.",
        OnConversation(by_role(Role.TOOL, _quoted)),
        ("J02",),
    ),
    Defect(
        "tool-result-without-recipient",
        "The header of a tool result lacks ` to=assistant`.",
        OnConversation(by_role(Role.TOOL, lambda message: replace(message, recipient=None))),
        ("V17",),
    ),
    Defect(
        "tool-result-under-another-name",
        "Tool results appear in the prompt under a name that no call has.",
        OnConversation(
            by_role(Role.TOOL, lambda message: replace(message, author=replace(message.author, name="functions.tool")))
        ),
        ("V17",),
    ),
    Defect(
        "past-final-without-channel",
        "Past answers of the assistant appear in the prompt without `<|channel|>final`.",
        OnConversation(
            each_message(lambda message: replace(message, channel=None) if message.channel == "final" else message)
        ),
        ("V17",),
    ),
    Defect(
        "commentary-no-valid-channel",
        "The system message lists only analysis and final as valid channels, even if functions are declared.",
        OnConversation(each_part_of(SystemContent, _without_commentary)),
    ),
    Defect(
        "header-forms-mixed",
        "In one prompt, past calls have the recipient before the channel, tool results after it.",
        OnPrompt(_result_header_reordered),
        ("V20",),
    ),
    Defect(
        "special-tokens-injected",
        "The prompt is tokenised with special tokens recognised: markers typed by a user become control tokens.",
        OnPrompt(lambda prompt: tuple(tokens.encode_with_special_tokens(tokens.decode(prompt)))),
        ("J11", "L08"),
    ),
    Defect(
        "limit-exceeded",
        "`max_tokens` and `max_completion_tokens` do not limit the generation.",
        OnSampling(lambda sampling: replace(sampling, limit=None)),
        ("V38",),
    ),
    Defect(
        "call-does-not-stop",
        "Generation continues after `<|call|>`.",
        OnSampling(lambda sampling: replace(sampling, stop_tokens=sampling.stop_tokens - {tokens.CALL})),
        ("M06",),
    ),
    Defect(
        "cross-talk",
        "Of more than eight requests that are processed at the same time, one gets the answer of another.",
        OnNeighbour(_neighbours_script),
    ),
    Defect(
        "effort-as-written",
        "A `reasoning_effort` that Harmony does not define is copied into the system message.",
        (OnRequest(_without_unknown_effort), OnPromptAndBody(_effort_as_written)),
    ),
    Defect(
        "author-name-as-written",
        "The `name` of a user message is copied into its header, markers included.",
        OnPromptAndBody(_names_as_written),
    ),
    Defect("date-placeholder", "The current date is an unfilled placeholder of the template.", OnPrompt(_placeholder)),
)
