"""The span of a judged exchange as plain values, by OpenTelemetry's conventions for generative AI.

Names are those of the semantic conventions 1.44 (gen-ai-spans, gen-ai-events). Names of our own begin with `harmony.`.
Texts of users and models are added only if they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harmony_conformance.apis import registry
from harmony_conformance.apis.chat_completion import Turn
from harmony_conformance.audit.redaction import Excerpts, apply_excerpts, function_names, redact
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    JsonObject,
    dumps,
    integer,
    items,
    loads,
    number,
    text,
    value_at,
)
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result
from harmony_conformance.prompts.request_members import REASONING_FIELDS, content_text
from harmony_proxy.capture.build_exchange import BuiltExchange
from harmony_proxy.capture.routes import api_of, route_of
from harmony_proxy.judging.counters import SERVER_FAULTS, answer_verdict
from harmony_proxy.judging.model_names import is_plain_name

MOST_CONTENT_BYTES = 256 * 1024
"""Longer messages are left out, since JSON that is cut cannot be read. `harmony.content_bytes` has their size."""

AttributeValue = str | bool | int | float | Sequence[str]
Attributes = dict[str, AttributeValue]

_TEXT_COMPLETION = frozenset(
    {
        registry.COMPLETIONS.name,
        registry.OLLAMA_GENERATE.name,
        registry.OLLAMA_RAW.name,
        registry.TGI_GENERATE.name,
        registry.SGLANG_GENERATE.name,
        registry.LLAMACPP_COMPLETION.name,
    }
)
_NUMBERS = (
    ("gen_ai.request.temperature", "temperature"),
    ("gen_ai.request.top_p", "top_p"),
    ("gen_ai.request.frequency_penalty", "frequency_penalty"),
    ("gen_ai.request.presence_penalty", "presence_penalty"),
)
_INTEGERS = (("gen_ai.request.seed", "seed"), ("gen_ai.request.top_k", "top_k"))
_FIRST_ERROR = 400
_INT64 = 1 << 63


@dataclass(frozen=True, kw_only=True)
class SpanEvent:
    """An event of a span."""

    name: str
    attributes: Attributes


@dataclass(frozen=True, kw_only=True)
class Span:
    """A finished span. `started` and `ended` are Unix times in seconds; `headers` may name its parent."""

    name: str
    started: float
    ended: float
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    headers: Mapping[str, str]
    is_error: bool


def build_span(
    built: BuiltExchange, applied: Sequence[Result], not_applicable: int, *, provider: str, content: Excerpts
) -> Span | None:
    """Return the span of an exchange; None if its route belongs to no model."""
    record, route = built.record, route_of(built.record.path)
    if not route:
        return None
    described = describe_call(built, provider=provider)
    attributes = {**described, "http.route": route, **_verdicts(built, applied, not_applicable)}
    if record.status is not None:
        attributes["http.response.status_code"] = record.status
    x = built.exchange
    if x is not None:
        attributes |= {**_request(x), **_response(built, x)}
        if content is not Excerpts.NONE:
            attributes |= _content(x, content)
    model = described.get("gen_ai.request.model", "")
    return Span(
        name=f"{described['gen_ai.operation.name']} {model}".rstrip(),
        started=record.started,
        ended=record.started + record.seconds,
        attributes=attributes,
        events=tuple(_evaluations(x, applied, content)),
        headers=_parent(record.request_headers),
        is_error="error.type" in described,
    )


def describe_call(built: BuiltExchange, *, provider: str) -> Attributes:
    """Return what all conventions want to know of a call: operation, provider, model and type of error."""
    record, api = built.record, built.exchange.api if built.exchange is not None else api_of(built.record.path)
    operation = "text_completion" if api in _TEXT_COMPLETION else "chat"
    described: Attributes = {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider}
    if is_plain_name(built.model):
        described["gen_ai.request.model"] = built.model
    if built.end in SERVER_FAULTS:
        described["error.type"] = built.end.value
    elif record.status is not None and record.status >= _FIRST_ERROR:
        described["error.type"] = str(record.status)
    return described


def _verdicts(built: BuiltExchange, applied: Sequence[Result], not_applicable: int) -> Attributes:
    record = built.record
    attributes: Attributes = {
        "harmony.verdict": answer_verdict(built, applied),
        "harmony.exchange.id": record.id,
        "harmony.end": built.end.value,
        "harmony.checks.passed": sum(result.outcome is Outcome.PASS for result in applied),
        "harmony.checks.not_applicable": not_applicable,
    }
    lists = {
        "harmony.checks.failed": _checks(applied, Outcome.FAIL),
        "harmony.checks.variants": _checks(applied, Outcome.VARIANT),
        "harmony.checks.errors": _checks(applied, Outcome.ERROR),
        "harmony.checks.repaired": [*record.repair_counts],
        "harmony.checks.blocked": [*record.blocked_checks],
        "harmony.checks.left": [*record.unrepaired_reasons],
    }
    attributes |= {name: found for name, found in lists.items() if found}
    if built.request_id:
        attributes["harmony.request_id"] = built.request_id
    if built.exchange is None:
        attributes["harmony.unjudged"] = built.unjudged_reason
    return attributes


def _checks(results: Sequence[Result], outcome: Outcome) -> list[str]:
    return [result.check for result in results if result.outcome is outcome]


def _request(x: Exchange) -> Attributes:
    asked = x.chat_request
    attributes: Attributes = {"gen_ai.request.stream": True} if x.wants_stream else {}
    for name, member in _NUMBERS:
        if (value := number(value_at(asked, member))) is not None:
            attributes[name] = value
    for name, member in _INTEGERS:
        attributes |= _whole(name, value_at(asked, member))
    attributes |= _whole("gen_ai.request.max_tokens", x.max_output_tokens)
    count = integer(value_at(asked, "n"))
    return attributes | (_whole("gen_ai.request.choice.count", count) if count != 1 else {})


def _response(built: BuiltExchange, x: Exchange) -> Attributes:
    attributes: Attributes = {}
    if built.is_stream and built.record.first_byte is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = built.record.first_byte
    turn = x.turn
    if turn is None:
        return attributes
    named = {"gen_ai.response.id": turn.id, "gen_ai.response.model": turn.model}
    fingerprint = next((text(value_at(body, "system_fingerprint")) for body in (x.chat_completion, *x.chunks[:1])), "")
    named["openai.response.system_fingerprint"] = fingerprint
    attributes |= {name: value for name, value in named.items() if value is not None and is_plain_name(value)}
    reasons = [one.turn.finish_reason for one in (x, *x.other_choices) if one.turn is not None]
    if known := [reason for reason in reasons if reason is not None and is_plain_name(reason)]:
        attributes["gen_ai.response.finish_reasons"] = known
    if (usage := turn.usage) is not None:
        attributes |= _whole("gen_ai.usage.input_tokens", usage.prompt_tokens)
        attributes |= _whole("gen_ai.usage.output_tokens", usage.completion_tokens)
        attributes |= _whole("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens)
        attributes |= _whole("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
    return attributes


def _whole(name: str, value: Json) -> Attributes:
    """Return an attribute with an integer, which OTLP sends in 64 bits; none for another value."""
    number = integer(value)
    return {name: number} if number is not None and -_INT64 <= number < _INT64 else {}


def _evaluations(x: Exchange | None, applied: Sequence[Result], content: Excerpts) -> Iterator[SpanEvent]:
    """Yield an event for each check that did not pass. Its explanation quotes the traffic, and hence has to be asked for."""
    reported = [result for result in applied if result.outcome is not Outcome.PASS]
    explains = x is not None and content is not Excerpts.NONE
    names = function_names(x) if x is not None and explains and reported else frozenset[str]()
    for result in reported:
        attributes: Attributes = {
            "gen_ai.evaluation.name": result.check,
            "gen_ai.evaluation.score.label": result.outcome.value,
            "harmony.check.severity": result.severity.value,
        }
        if explains and result.findings:
            found = [apply_excerpts(finding, content, names) for finding in result.findings]
            attributes["gen_ai.evaluation.explanation"] = "; ".join(str(finding.message) for finding in found)
        yield SpanEvent(name="gen_ai.evaluation.result", attributes=attributes)


_PARENT = (b"traceparent", b"tracestate")


def _parent(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers that name the caller's span."""
    return {name.lower().decode(): value.decode("latin-1") for name, value in headers if name.lower() in _PARENT}


def _content(x: Exchange, content: Excerpts) -> Attributes:
    asked: list[Json] = [_input_message(message, content) for message in x.messages]
    answers: list[Json] = [_output_message(one.turn, content) for one in (x, *x.other_choices) if one.turn is not None]
    texts = {"gen_ai.input.messages": asked, "gen_ai.output.messages": answers}
    written = {name: dumps(messages) for name, messages in texts.items() if messages}
    size = sum(len(value) for value in written.values())
    return {"harmony.content_bytes": size} if size > MOST_CONTENT_BYTES else {**written}


def _input_message(message: Json, content: Excerpts) -> Json:
    role = text(value_at(message, "role"))
    said = content_text(value_at(message, "content")) or ""
    thought = next((found for field in REASONING_FIELDS if (found := text(value_at(message, field)))), "")
    if role == "tool":
        result: JsonObject = {
            "type": "tool_call_response",
            "id": value_at(message, "tool_call_id"),
            "response": _shown(said, content),
        }
        return {"role": role, "parts": [result]}
    calls = [
        (value_at(call, "id"), value_at(call, "function", "name"), value_at(call, "function", "arguments"))
        for call in items(value_at(message, "tool_calls"))
    ]
    return {"role": role, "parts": _parts(thought, said, calls, content)}


def _output_message(turn: Turn, content: Excerpts) -> Json:
    calls: list[tuple[Json, Json, Json]] = [(call.id, call.name, call.arguments) for call in turn.tool_calls]
    parts = _parts(turn.reasoning or "", turn.content or turn.refusal or "", calls, content)
    return {"role": turn.role or "assistant", "parts": parts, "finish_reason": turn.finish_reason or ""}


def _parts(thought: str, said: str, calls: Sequence[tuple[Json, Json, Json]], content: Excerpts) -> list[Json]:
    parts: list[Json] = [{"type": "reasoning", "content": _shown(thought, content)}] if thought else []
    if said:
        parts.append({"type": "text", "content": _shown(said, content)})
    for name, function, arguments in calls:
        parts.append(
            {"type": "tool_call", "id": name, "name": function, "arguments": _arguments(text(arguments), content)}
        )
    return parts


def _arguments(arguments: str, content: Excerpts) -> Json:
    """Return arguments as the object that they are; otherwise, or redacted, as text."""
    if content is not Excerpts.FULL:
        return redact(arguments)
    try:
        parsed = loads(arguments)
    except InvalidJsonError:
        return arguments
    return parsed if isinstance(parsed, dict) and dumps(parsed) == arguments else arguments


def _shown(value: str, content: Excerpts) -> str:
    return value if content is Excerpts.FULL else redact(value)
