"""Records of gateways and observability tools that store requests: LiteLLM, Helicone, OpenRouter, Langfuse.

Sources: LiteLLM 1.106 (`StandardLoggingPayload`, table `LiteLLM_SpendLogs`), the API reference of OpenRouter (`/generation/content`),
Langfuse's field reference of exports and its API (`/api/public/observations`). Helicone's export is a pair, see `pairs`;
its manual logger (helicone-helpers 1.2) sends another form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from harmony_conformance.apis.registry import CHAT_COMPLETIONS, COMPLETIONS, RESPONSES
from harmony_conformance.apis.text_fields import parse_text
from harmony_conformance.audit.readers.records.http_pair import HttpPair, build_exchange, read_status, read_time
from harmony_conformance.audit.readers.records.partial import conversation_exchange, read_message
from harmony_conformance.audit.readers.records.record import LoggedExchange, Shape
from harmony_conformance.evidence.exchange_json import NotAnExchangeError
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at

_LITELLM_CALLS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("completion", "acompletion"), (CHAT_COMPLETIONS.path, "messages")),
    **dict.fromkeys(("text_completion", "atext_completion"), (COMPLETIONS.path, "prompt")),
    **dict.fromkeys(("responses", "aresponses"), (RESPONSES.path, "input")),
}
"""Path and member of the conversation by LiteLLM's `call_type`. The others are found by their members."""
_NO_CONTENT = "no exchange: the log has no content (set `store_prompts_in_spend_logs: true`, or keep `turn_off_message_logging` off)"

_FAILED = "no exchange: it has no response, its request failed"
_HELICONE_MEMBERS = frozenset({"_type", "toolName"})
"""The members that Helicone's manual logger adds to a response."""

_REDACTED = "redacted-by-litellm"
"""The text of answers whose content LiteLLM does not log."""


def _is_litellm(value: JsonObject) -> bool:
    return isinstance(value.get("standard_logging_object"), dict) or (
        "call_type" in value and "response" in value and ("messages" in value or "proxy_server_request" in value)
    )


def _read_litellm(value: Json, name: str) -> LoggedExchange:
    """Return the exchange of a payload of LiteLLM's callbacks, or of a row of its spend logs."""
    found = members(value_at(value, "standard_logging_object") or value)
    path, conversation = _LITELLM_CALLS.get(text(found.get("call_type")), ("", "messages"))
    response, messages = parse_text(found.get("response")), parse_text(found.get("messages"))
    sent = parse_text(found.get("proxy_server_request"))
    sent = value_at(sent, "body") if isinstance(value_at(sent, "body"), dict) else sent
    if not response and found.get("error_str") is None:
        raise NotAnExchangeError(_NO_CONTENT)
    if not response:
        raise NotAnExchangeError(_FAILED)
    if not isinstance(sent, dict) or conversation not in sent:
        settings = {
            key: setting for key, setting in members(found.get("model_parameters")).items() if setting is not None
        }
        sent = {"model": found.get("model"), conversation: messages or found.get("messages"), **settings}
    if isinstance(response, str) or not sent.get(conversation):
        raise NotAnExchangeError(_NO_CONTENT)
    if _has_text(response, _REDACTED):
        raise NotAnExchangeError("not judged: LiteLLM has redacted the answer (keep `turn_off_message_logging` off)")
    pair = HttpPair(request=sent, response=response, path=path, started=read_time(found.get("startTime")))
    return LoggedExchange(exchange=build_exchange(pair, name=name), provider=text(found.get("custom_llm_provider")))


def _has_text(value: Json, wanted: str) -> bool:
    """Return True if a text in a value is this one."""
    if isinstance(value, dict | list):
        return any(_has_text(one, wanted) for one in (value.values() if isinstance(value, dict) else value))
    return value == wanted


LITELLM = Shape(
    name="litellm", title="payloads of LiteLLM's callbacks, its spend logs", matches=_is_litellm, read=_read_litellm
)


def _is_helicone(value: JsonObject) -> bool:
    return isinstance(value_at(value, "providerRequest", "json"), dict) and isinstance(
        value.get("providerResponse"), dict
    )


def _read_helicone(value: Json, name: str) -> LoggedExchange:
    """Return the exchange of a record of Helicone's manual logger.

    The response is an object, or a text: a body, or the chunks of a stream, one a line.
    """
    request, received = value_at(value, "providerRequest", "json"), members(value_at(value, "providerResponse"))
    body = {key: found for key, found in members(received.get("json")).items() if key not in _HELICONE_MEMBERS}
    response: Json = _parse_chunks(text(received.get("textBody"))) or body
    if not response:
        raise NotAnExchangeError("no exchange: it has no response, or none in JSON")
    path = text(value_at(value, "providerRequest", "url"))
    pair = HttpPair(
        request=request,
        response=response,
        path=urlsplit(path).path if "://" in path else "",
        status=read_status(received.get("status")) or 200,
        started=read_time(value_at(value, "timing", "startTime", "seconds")),
    )
    return LoggedExchange(exchange=build_exchange(pair, name=name))


def _parse_chunks(written: str) -> Json:
    """Return the value of a text, or those of its lines. None if they are not JSON: the manual logger also sends tracebacks."""
    values = [parse_text(line) for line in written.split("\n") if line.strip()]
    if not all(isinstance(value, dict) for value in values):
        return None
    return values[0] if len(values) == 1 else values


HELICONE = Shape(
    name="helicone", title="records of Helicone's manual logger", matches=_is_helicone, read=_read_helicone
)


def _is_openrouter(value: JsonObject) -> bool:
    return isinstance(value_at(value, "data", "output"), dict) and "completion" in members(
        value_at(value, "data", "output")
    )


def _read_openrouter(value: Json, name: str) -> LoggedExchange:
    asked, output = value_at(value, "data", "input"), members(value_at(value, "data", "output"))
    if output.get("completion") is None and value_at(value, "data", "error") is not None:
        raise NotAnExchangeError(_FAILED)
    answer: JsonObject = {"content": output.get("completion"), "reasoning": output.get("reasoning")}
    prompt: list[Json] = [{"role": "user", "content": value_at(asked, "prompt")}] if value_at(asked, "prompt") else []
    data = members(value_at(value, "data"))
    messages = items(value_at(asked, "messages")) or prompt
    logged = conversation_exchange(
        messages, answer, name=name, model=data.get("model"), started=read_time(data.get("created_at"))
    )
    return replace(logged, provider=text(data.get("provider_name")))


OPENROUTER = Shape(
    name="openrouter", title="stored generations of OpenRouter", matches=_is_openrouter, read=_read_openrouter
)


def _is_observation(value: JsonObject) -> bool:
    return "input" in value and "output" in value


def _read_observation(value: Json, name: str) -> LoggedExchange:
    """Return the exchange of `input` and `output`, as Langfuse and similar tools name them.

    A complete response under `output` is judged with its request, if `input` is one. Otherwise the texts are judged.
    """
    found = members(value)
    kind = text(found.get("type"))
    if kind and kind.upper() not in ("GENERATION", "CHAT"):
        raise NotAnExchangeError("no exchange: the observation is no generation")
    asked, output = parse_text(found["input"]), parse_text(found["output"])
    if output is None and not text(found["output"]):
        raise NotAnExchangeError("no exchange: it has no response")
    named = (found.get(name) for name in ("model", "providedModelName", "provided_model_name"))
    model = next((name for name in named if name), value_at(asked, "model"))
    started = read_time(found.get("startTime") or found.get("start_time"))
    if (
        isinstance(asked, dict)
        and isinstance(output, dict)
        and (value_at(output, "choices") or value_at(output, "object"))
    ):
        settings = members(parse_text(found.get("modelParameters") or found.get("model_parameters")))
        return LoggedExchange(
            exchange=build_exchange(
                HttpPair(request={**settings, "model": model, **asked}, response=output, started=started), name=name
            )
        )
    messages = items(asked) or items(value_at(asked, "messages"))
    if not messages and isinstance(found["input"], str):
        messages.append({"role": "user", "content": found["input"]})
    answer = read_message(output if isinstance(output, dict | list) else found["output"])
    return conversation_exchange(messages, answer, name=name, model=model, started=started)


OBSERVATION = Shape(
    name="langfuse", title="observations with `input` and `output`", matches=_is_observation, read=_read_observation
)
