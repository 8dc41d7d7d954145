"""Defects in what agents use of the Responses API: tools of every type, and the state that the server stores."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    BodyChange,
    drop_members,
    for_type,
    in_list,
    in_member,
    on_request,
    without_events,
)
from harmony_conformance.reference_server.defects.stages import (
    ApiFamily,
    Change,
    Defect,
    OnJson,
    OnReply,
    OnRequest,
    OnStoredItems,
    OnStream,
)
from harmony_conformance.reference_server.requests.errors import Reply, server_failure

_request = partial(on_request, ApiFamily.RESPONSES)

_BUILT_IN = ("web_search", "code_interpreter")


def _without_tools(*kinds: str) -> BodyChange:
    """Return a change that skips tools of these types."""

    def change(body: JsonObject) -> JsonObject:
        if "tools" not in body:
            return body
        return {**body, "tools": [tool for tool in items(body["tools"]) if value_at(tool, "type") not in kinds]}

    return change


def _functions_only(body: JsonObject) -> JsonObject:
    if "tools" not in body:
        return body
    return {**body, "tools": [tool for tool in items(body["tools"]) if _is_kept(text(value_at(tool, "type")))]}


def _is_kept(kind: str) -> bool:
    return kind == "function" or kind.startswith(_BUILT_IN)


def _refuse_namespaces(body: JsonObject) -> JsonObject:
    if any(value_at(tool, "type") == "namespace" for tool in items(body.get("tools"))):
        raise server_failure("KeyError: 'parameters'")
    return body


def _refused_without_reason(reply: Reply) -> Reply:
    if reply.status >= 400 and text(value_at(reply.body, "error", "param")).startswith("tools["):  # noqa: PLR2004 - an error
        return Reply(
            status=reply.status,
            body={"error": {"message": "Bad request.", "type": "invalid_request_error", "param": None, "code": None}},
        )
    return reply


def _everywhere(change: BodyChange, *left_out: str) -> tuple[Change, ...]:
    """Change the items of the output, and those in events. Events and parts whose type begins with a text in `left_out` are not sent."""

    def changed(stream: Iterator[Json]) -> Iterator[Json]:
        kept = without_events(stream, lambda event: any(kind.startswith(left_out) for kind in _kinds(event)))
        return map(in_member("item", change), kept)

    return OnJson(in_list("output", change), ApiFamily.RESPONSES), OnStream(changed, ApiFamily.RESPONSES)


def _kinds(event: Json) -> tuple[str, str]:
    return text(value_at(event, "type")), f"response.{text(value_at(event, 'part', 'type'))}"


_ARGUMENTS, _INPUT = "response.function_call_arguments", "response.custom_tool_call_input"


def _as_function_call(item: JsonObject) -> JsonObject:
    """A custom call as a server returns it that knows functions only."""
    rest: JsonObject = {name: value for name, value in item.items() if name not in ("type", "input")}
    return {**rest, "type": "function_call", "arguments": dumps({"input": item.get("input")})}


def _action_as_function(item: JsonObject) -> JsonObject:
    kind = text(item.get("type"))
    if kind not in ("local_shell_call", "shell_call", "apply_patch_call", "tool_search_call"):
        return item
    content = next((item[name] for name in ("action", "operation", "arguments") if name in item), None)
    kept: JsonObject = {name: item.get(name) for name in ("id", "call_id", "status")}
    return {**kept, "type": "function_call", "name": kind.removesuffix("_call"), "arguments": dumps(content)}


def _joined(mark: str) -> BodyChange:
    """Return a change that folds the namespace of a call into its name."""

    def change(item: JsonObject) -> JsonObject:
        if not item.get("namespace"):
            return item
        rest: JsonObject = {name: value for name, value in item.items() if name != "namespace"}
        return {**rest, "name": f"{text(item['namespace'])}{mark}{text(item.get('name'))}"}

    return change


def _named_twice(item: JsonObject) -> JsonObject:
    is_call = item.get("type") in ("custom_tool_call", "function_call") and not item.get("namespace")
    return {**item, "namespace": item.get("name")} if is_call else item


def _wrapped(item: JsonObject) -> JsonObject:
    return {**item, "input": dumps({"input": item.get("input")})}


def _without_custom_calls(body: JsonObject) -> JsonObject:
    if "output" not in body:
        return body
    return {**body, "output": [item for item in items(body["output"]) if value_at(item, "type") != "custom_tool_call"]}


def _without_custom_events(stream: Iterator[Json]) -> Iterator[Json]:
    return without_events(stream, _is_of_custom_call)


def _is_of_custom_call(event: Json) -> bool:
    is_input = text(value_at(event, "type")).startswith(_INPUT)
    return is_input or value_at(event, "item", "type") == "custom_tool_call"


def _input_dropped(item: JsonObject) -> JsonObject:
    return {**item, "input": ""} if item.get("type") == "custom_tool_call" else item


def _without_calls(entries: tuple[Json, ...]) -> tuple[Json, ...]:
    kinds = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
    return tuple(entry for entry in entries if value_at(entry, "type") not in kinds)


def _without_results(body: JsonObject) -> JsonObject:
    if body.get("previous_response_id") is None or not isinstance(body.get("input"), list):
        return body
    return {**body, "input": [*_without_calls(tuple(items(body["input"])))]}


def _in_background(change: BodyChange) -> OnReply:
    """Return a change to a finished response that was made in the background."""

    def changed(reply: Reply) -> Reply:
        is_finished = reply.body.get("background") is True and reply.body.get("status") == "completed"
        return replace(reply, body=change(reply.body)) if is_finished else reply

    return OnReply(changed, ApiFamily.RESPONSES)


def _one_late(body: JsonObject) -> JsonObject:
    number = integer(body.get("starting_after"))
    return body if number is None else {**body, "starting_after": number + 1}


def _stored_anyway(body: JsonObject) -> JsonObject:
    return {**body, "store": True} if body.get("store") is False else body


def _never_stored(body: JsonObject) -> JsonObject:
    return {**body, "store": False} if body.get("store") is True and body.get("background") is not True else body


def _as_stored(body: JsonObject) -> JsonObject:
    return {**body, "store": True} if "store" in body else body


def _without_sealed(body: JsonObject) -> JsonObject:
    if "include" not in body:
        return body
    return {**body, "include": [one for one in items(body["include"]) if one != "reasoning.encrypted_content"]}


def _without_content(item: JsonObject) -> JsonObject:
    return {**item, "content": []}


DEFECTS = (
    _request(
        "agents-tools-skipped",
        "Tools that are no functions are skipped, and the request is answered without them.",
        _functions_only,
        ("L18",),
    ),
    _request(
        "agents-namespaces-skipped",
        "Tools in a namespace are skipped, and the request is answered without them.",
        _without_tools("namespace"),
        ("P18",),
    ),
    _request(
        "agents-namespaces-500",
        "A request with a namespace of tools is answered with a 500.",
        _refuse_namespaces,
    ),
    Defect(
        "agents-tools-refused-without-reason",
        "A request with a tool that the server does not offer is refused without naming the tool.",
        OnReply(_refused_without_reason, ApiFamily.RESPONSES),
    ),
    Defect(
        "agents-namespace-in-name",
        "A call in a namespace has no namespace, and its name is `namespace.name`.",
        _everywhere(_joined("."), _ARGUMENTS),
        ("O24",),
    ),
    Defect(
        "agents-namespace-flattened",
        "A call in a namespace has no namespace, and its name is `namespace__name`.",
        _everywhere(_joined("__"), _ARGUMENTS),
        ("V46",),
    ),
    Defect(
        "agents-name-as-namespace",
        "A call has its own name as namespace too, so that the client looks for `execexec`.",
        _everywhere(_named_twice),
        ("P19",),
    ),
    Defect(
        "agents-custom-as-function",
        "A call of a custom tool is a function call, with the input in JSON.",
        _everywhere(for_type("custom_tool_call", _as_function_call), _INPUT),
        ("P20",),
    ),
    Defect(
        "agents-shells-as-functions",
        "Calls of shells, patches and searches are function calls.",
        _everywhere(_action_as_function),
        ("P20",),
    ),
    Defect(
        "agents-custom-input-in-json",
        "The input of a custom call is the JSON that the model wrote around it.",
        _everywhere(for_type("custom_tool_call", _wrapped), _INPUT),
    ),
    Defect(
        "agents-custom-calls-lost",
        "Calls of custom tools are missing from the output.",
        (OnJson(_without_custom_calls, ApiFamily.RESPONSES), OnStream(_without_custom_events, ApiFamily.RESPONSES)),
        ("P20",),
    ),
    _request(
        "agents-custom-history-lost",
        "Calls of custom tools that the client sends back never reach the prompt with their input.",
        in_list("input", _input_dropped),
    ),
    Defect(
        "agents-stored-calls-dropped",
        "Calls and results are missing from the context that `previous_response_id` restores.",
        (OnStoredItems(_without_calls), OnRequest(_without_results, ApiFamily.RESPONSES)),
        ("V45",),
    ),
    _request(
        "agents-conversation-ignored",
        "`conversation` is ignored: the model sees the new input only.",
        drop_members("conversation"),
    ),
    Defect(
        "agents-background-stuck",
        "A response in the background is in progress for ever.",
        _in_background(lambda body: {**body, "status": "in_progress"}),
    ),
    Defect(
        "agents-background-empty",
        "A response in the background has no output when it is retrieved.",
        _in_background(lambda body: {**body, "output": []}),
    ),
    _request(
        "agents-starting-after-ignored",
        "A stream that is resumed by `starting_after` begins again.",
        drop_members("starting_after"),
    ),
    _request(
        "agents-resumed-one-late",
        "A stream that is resumed by `starting_after` leaves out the next event.",
        _one_late,
    ),
    _request("agents-cancel-without-effect", "A cancelled response is generated to its end.", drop_members("cancel")),
    _request("agents-stored-anyway", "A response is stored although the request has `store: false`.", _stored_anyway),
    Defect(
        "agents-store-promised",
        "A response reports `store: true`, and cannot be retrieved.",
        (OnRequest(_never_stored, ApiFamily.RESPONSES), OnJson(_as_stored, ApiFamily.RESPONSES)),
    ),
    Defect(
        "agents-encrypted-reasoning-missing",
        "Reasoning is hidden, and not returned encrypted where `include` requests it.",
        (
            OnRequest(_without_sealed, ApiFamily.RESPONSES),
            *_everywhere(for_type("reasoning", _without_content), "response.reasoning"),
        ),
    ),
    _request(
        "agents-encrypted-reasoning-unread",
        "The `encrypted_content` of reasoning that is sent back is ignored.",
        in_list("input", for_type("reasoning", drop_members("encrypted_content"))),
    ),
)
