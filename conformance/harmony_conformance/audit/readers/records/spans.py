"""Spans of traces: OpenTelemetry's conventions for generative AI, and OpenInference (Arize, Phoenix).

Read are OTLP in JSON (collector, file exporter), spans as the Python SDK prints them, and rows with `attributes.…` columns. Members of OTLP may have
their names in protobuf.
Sources: semantic conventions 1.37 of OpenTelemetry (gen-ai-spans, gen-ai-events), OpenInference's semantic conventions 0.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from harmony_conformance.apis.text_fields import parse_text
from harmony_conformance.audit.readers.records.http_pair import HttpPair, build_exchange, read_time
from harmony_conformance.audit.readers.records.partial import conversation_exchange, read_message
from harmony_conformance.audit.readers.records.record import LoggedExchange, Shape
from harmony_conformance.evidence.exchange_json import NotAnExchangeError
from harmony_conformance.json_value import Json, JsonObject, dumps, items, members, text, value_at

_NO_CALL = "no exchange: the span is no call of a model"
_NO_CONTENT = "no exchange: the span has no content (set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT, or stop hiding inputs and outputs)"
_SPAN = "attributes"
_CHOICE = "gen_ai.choice"
"""The name of the log record of an answer, which older instrumentations write apart from its span."""
_MESSAGE_EVENT = re.compile(r"gen_ai\.\w+\.message")
_MODELS = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "langfuse.observation.model.name")
_PROVIDERS = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
_ENGINES = (
    "gen_ai.response.system_fingerprint",
    "openai.response.system_fingerprint",
    "gen_ai.openai.response.system_fingerprint",
)
_USERS = ("enduser.id", "user.id", "langfuse.user.id", "gen_ai.request.user")
_TIMES = ("startTimeUnixNano", "timeUnixNano", "observedTimeUnixNano", "start_time_unix_nano")
"""Times of spans and log records. The SDK writes events with the time of observation alone."""
_CASES = {
    "string_value": "stringValue",
    "bool_value": "boolValue",
    "double_value": "doubleValue",
    "int_value": "intValue",
    "array_value": "arrayValue",
    "kvlist_value": "kvlistValue",
}
"""The names of protobuf and those of its JSON. Phoenix exports the former."""
_WHOLE_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)
"""An integer of 64 bits, which JSON of protobuf has as a text."""
_CALL_SIGNS = (*_MODELS, "gen_ai.operation.name", "gen_ai.system", "gen_ai.provider.name")


def split_otlp(value: JsonObject) -> list[Json]:
    """Return the spans and log records of a message of OTLP in JSON, each with plain attributes."""
    groups = (("resourceSpans", "scopeSpans", "spans"), ("resourceLogs", "scopeLogs", "logRecords"))
    return [
        _plain_span(members(record))
        for outer, inner, records in groups
        for resource in items(value.get(outer))
        for scope in items(value_at(resource, inner))
        for record in items(value_at(scope, records))
    ]


def _plain_span(record: JsonObject) -> Json:
    attributes = _attributes(record.get("attributes"))
    body = _any_value(record["body"]) if "body" in record else None
    events: list[Json] = [
        {"name": value_at(event, "name"), _SPAN: _attributes(value_at(event, _SPAN))}
        for event in items(record.get("events"))
    ]
    started = next((at for key in _TIMES if (at := record.get(key)) and at != "0"), None)
    name = record.get("name") or record.get("eventName")
    return {"name": name, _SPAN: attributes, "events": events, "body": body, "start_time": _iso(started)}


def _iso(nanoseconds: Json) -> Json:
    try:
        return datetime.fromtimestamp(int(str(nanoseconds)) / 1e9, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _attributes(pairs: Json) -> JsonObject:
    return {text(value_at(pair, "key")): _any_value(value_at(pair, "value")) for pair in items(pairs)}


def _any_value(value: Json) -> Json:
    """Return the plain value of an `AnyValue` of OTLP."""
    match {_CASES.get(name, name): plain for name, plain in members(value).items() if plain is not None}:
        case {"stringValue": str(plain)} | {"boolValue": bool(plain)} | {"doubleValue": float(plain) | int(plain)}:
            return plain
        case {"intValue": int(plain) | str(plain)}:
            return int(plain) if isinstance(plain, int) or _WHOLE_NUMBER.fullmatch(plain) else plain
        case {"arrayValue": wrapped}:
            return [_any_value(one) for one in items(value_at(wrapped, "values"))]
        case {"kvlistValue": wrapped}:
            return _attributes(value_at(wrapped, "values"))
        case _:
            return None


def _is_span(value: JsonObject) -> bool:
    return (
        isinstance(value.get(_SPAN), dict)
        or _is_encoded(value)
        or any(key.startswith((_SPAN + ".llm.", _SPAN + ".gen_ai.")) for key in value)
    )


def _is_encoded(value: JsonObject) -> bool:
    """Return True for a span of OTLP outside of its message."""
    return isinstance(value.get(_SPAN), list) and any(name in value for name in _TIMES)


def _read_span(value: Json, name: str) -> LoggedExchange:
    found = members(_plain_span(members(value)) if _is_encoded(members(value)) else value)
    columns = {key.removeprefix(_SPAN + "."): member for key, member in found.items() if key.startswith(_SPAN + ".")}
    attributes = dict(_flat({**members(found.get(_SPAN)), **columns}))
    started = read_time(found.get("start_time"))
    if raw := _raw_pair(attributes, started):
        return _with_source(LoggedExchange(exchange=build_exchange(raw, name=name)), attributes)
    events = [(text(value_at(event, "name")), members(value_at(event, _SPAN))) for event in items(found.get("events"))]
    for _, detail in events:
        attributes |= {key: member for key, member in detail.items() if key.startswith("gen_ai.")}
    messages, answer = _conversation(attributes)
    if answer is None and found.get("name") == _CHOICE:
        answer = value_at(found.get("body"), "message") or found.get("body")
    if answer is None:
        if _MESSAGE_EVENT.fullmatch(text(found.get("name"))):
            raise NotAnExchangeError("no exchange: a message of a request, apart from its answer")
        is_call = any(sign in attributes for sign in _CALL_SIGNS) or attributes.get("openinference.span.kind") == "LLM"
        raise NotAnExchangeError(_NO_CONTENT if is_call else _NO_CALL)
    model = next((attributes[key] for key in _MODELS if key in attributes), None)
    logged = conversation_exchange(messages, answer, name=name, model=model, started=started)
    return _with_source(logged, attributes)


def _with_source(logged: LoggedExchange, attributes: Mapping[str, Json]) -> LoggedExchange:
    provider, engine, user = (
        next((found for name in names if (found := text(attributes.get(name)))), "")
        for names in (_PROVIDERS, _ENGINES, _USERS)
    )
    return replace(logged, provider=provider, engine=engine, user=user)


SPAN = Shape(name="otel", title="spans of OpenTelemetry and OpenInference", matches=_is_span, read=_read_span)


def _flat(value: JsonObject, before: str = "") -> Iterator[tuple[str, Json]]:
    """Yield attributes under dotted names. Some exports nest them."""
    for key, member in value.items():
        if isinstance(member, dict) and not key.endswith("messages"):
            yield from _flat(member, f"{before}{key}.")
        else:
            yield before + key, member


def _raw_pair(attributes: Mapping[str, Json], started: str | None) -> HttpPair | None:
    """Return the request and response that OpenInference keeps as JSON, None if one of them is missing or was changed."""
    asked, output = parse_text(attributes.get("input.value")), parse_text(attributes.get("output.value"))
    if (
        not isinstance(asked, dict)
        or not isinstance(output, dict)
        or not (output.get("choices") or output.get("object"))
    ):
        return None
    settings = members(parse_text(attributes.get("llm.invocation_parameters")))
    return HttpPair(request={**settings, **asked}, response=output, started=started)


def _conversation(attributes: Mapping[str, Json]) -> tuple[list[Json], Json]:
    """Return the messages of a span and the message that answers them, None without content."""
    answers = _part_messages(attributes.get("gen_ai.output.messages"))
    if answers:
        asked = _part_messages(attributes.get("gen_ai.input.messages"))
        system = _parts({"role": "system", "parts": parse_text(attributes.get("gen_ai.system_instructions"))})
        return [*([system] if value_at(system, "content") else []), *asked], answers[0]
    for before, after in (("llm.input_messages", "llm.output_messages"), ("gen_ai.prompt", "gen_ai.completion")):
        answers = _numbered_messages(attributes, after)
        if answers:
            return _numbered_messages(attributes, before), answers[0]
    if (output := attributes.get("langfuse.observation.output")) is not None:
        observed = parse_text(attributes.get("langfuse.observation.input"))
        return items(observed) or items(value_at(observed, "messages")), read_message(output)
    return [], None


def _part_messages(value: Json) -> list[Json]:
    return [_parts(message) for message in items(parse_text(value))]


def _parts(message: Json) -> Json:
    """Return a message whose parts have the names of OpenTelemetry's conventions as a message of Chat Completions."""
    parts = items(value_at(message, "parts"))
    if not parts:
        return message
    texts, thoughts = (_joined(parts, kind) for kind in ("text", "reasoning"))
    calls: list[Json] = [
        {"id": value_at(part, "id"), "type": "function", "function": _function(part)}
        for part in parts
        if value_at(part, "type") == "tool_call"
    ]
    results = [part for part in parts if value_at(part, "type") == "tool_call_response"]
    if results:
        result = value_at(results[0], "response") or value_at(results[0], "result")
        content = result if isinstance(result, str) else dumps(result)
        return {"role": "tool", "tool_call_id": value_at(results[0], "id"), "content": content}
    return {
        "role": value_at(message, "role"),
        "content": texts,
        **({"reasoning": thoughts} if thoughts else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def _joined(parts: list[Json], kind: str) -> str:
    return "".join(text(value_at(part, "content")) for part in parts if value_at(part, "type") == kind)


def _function(part: Json) -> Json:
    arguments = value_at(part, "arguments")
    return {"name": value_at(part, "name"), "arguments": arguments if isinstance(arguments, str) else dumps(arguments)}


_NUMBERED = re.compile(r"(\d{1,6})\.(?:message\.)?(.+)")
_CALL = re.compile(r"tool_calls\.(\d{1,6})\.(?:tool_call\.)?(?:function\.)?(id|name|arguments)")


def _numbered_messages(attributes: Mapping[str, Json], prefix: str) -> list[Json]:
    """Return messages that are spread over attributes: `llm.input_messages.0.message.role`, `gen_ai.prompt.0.content`."""
    listed = attributes.get(prefix)
    if isinstance(parsed := parse_text(listed), list):
        return [_listed_message(members(one)) for one in parsed]
    found: dict[int, JsonObject] = {}
    for key, member in attributes.items():
        if key.startswith(prefix + ".") and (match := _NUMBERED.fullmatch(key[len(prefix) + 1 :])):
            found.setdefault(int(match[1]), {})[match[2]] = member
    return [_numbered_message(found[number]) for number in sorted(found)]


def _listed_message(found: JsonObject) -> Json:
    """Return a message of a list, in which its members may be nested or have the prefix `message.`."""
    if "message" in found:
        return found["message"]
    return _numbered_message({key.removeprefix("message."): member for key, member in found.items()})


def _numbered_message(found: JsonObject) -> Json:
    calls: dict[int, JsonObject] = {}
    for key, member in found.items():
        if match := _CALL.fullmatch(key):
            calls.setdefault(int(match[1]), {})[match[2]] = member
    made: list[Json] = [
        {
            "id": calls[number].get("id"),
            "type": "function",
            "function": {key: calls[number].get(key) for key in ("name", "arguments")},
        }
        for number in sorted(calls)
    ]
    contents = [text(found[key]) for key in sorted(found) if key.endswith("message_content.text")]
    listed: JsonObject = {"tool_calls": found["tool_calls"]} if items(found.get("tool_calls")) else {}
    message: JsonObject = {
        **listed,
        "role": found.get("role"),
        "content": found.get("content") or "".join(contents) or None,
    }
    thought = found.get("reasoning") or found.get("reasoning_content")
    return {**message, **({"reasoning": thought} if thought else {}), **({"tool_calls": made} if made else {})}
