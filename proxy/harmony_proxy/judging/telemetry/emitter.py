"""Spans and metrics, sent by OpenTelemetry's SDK over OTLP/HTTP from threads of the judge process.

The SDK's variables apply: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER` and others.
A span has the caller's span as parent, if the request names it (`traceparent`).
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Sequence
from importlib.metadata import version
from threading import Timer

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.judge.judge import Result
from harmony_conformance.runtime.terminal_text import escape_invisible
from harmony_proxy.capture.build_exchange import BuiltExchange
from harmony_proxy.capture.routes import route_of
from harmony_proxy.judging.counters import answer_verdict
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.model_names import ModelNames
from harmony_proxy.judging.telemetry.span import Attributes, build_span, describe_call

CLOSE_SECONDS = 5.0
"""At the end, what the receiver has not taken after this time is lost."""
_SCOPE = "harmony_proxy"
_VERSION = version("harmony-conformance")
_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
_NANOSECONDS = 1_000_000_000
_SPANS_WITH_CONTENT = 32
"""Largest batch of spans with content: collectors take requests up to 20 MiB."""
_TOKEN_BUCKETS = [4.0**power for power in range(14)]
_SECOND_BUCKETS = [0.01 * 2.0**power for power in range(14)]
_FIRST_CHUNK_BUCKETS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]


class OtlpEmitter:
    """Sends a span for each exchange of a known route, and metrics of all. State: the SDK's queues and the names of models."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._provider = settings.engine
        self._content = Excerpts(settings.otel_content)
        self._models = ModelNames()
        _report_failures()
        base = settings.otel.rstrip("/")
        resource = _resource()
        spans, metrics = OTLPSpanExporter(f"{base}/v1/traces"), OTLPMetricExporter(f"{base}/v1/metrics")
        self._exporters = (spans, metrics)
        size = None if self._content is Excerpts.NONE else _SPANS_WITH_CONTENT
        self._tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracing.add_span_processor(BatchSpanProcessor(spans, max_export_batch_size=size))
        self._metering = MeterProvider([PeriodicExportingMetricReader(metrics)], resource, shutdown_on_exit=False)
        self._tracer = self._tracing.get_tracer(_SCOPE, _VERSION, schema_url=_SCHEMA)
        meter = self._metering.get_meter(_SCOPE, _VERSION, schema_url=_SCHEMA)
        histogram, counter = meter.create_histogram, meter.create_counter
        self._duration = histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration",
            explicit_bucket_boundaries_advisory=_SECOND_BUCKETS,
        )
        self._first_chunk = histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "Time to receive the first chunk of a stream",
            explicit_bucket_boundaries_advisory=_FIRST_CHUNK_BUCKETS,
        )
        self._tokens = histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self._answers = counter("harmony.answers", "{answer}", "Answers, each with one verdict")
        self._results = counter("harmony.check.results", "{result}", "Results of checks that applied")
        self._actions = counter("harmony.actions", "{action}", "Actions on answers: repaired, blocked, left")
        self._parents = TraceContextTextMapPropagator()

    def emit(self, built: BuiltExchange, applied: Sequence[Result], not_applicable: int) -> None:
        """Queue the span of an exchange, and count it."""
        if not route_of(built.record.path):
            return
        usage = built.exchange.turn.usage if built.exchange is not None and built.exchange.turn is not None else None
        tokens = {"input": usage.prompt_tokens, "output": usage.completion_tokens} if usage is not None else {}
        self._count(built, applied, {kind: count for kind, count in tokens.items() if count is not None})
        span = build_span(built, applied, not_applicable, provider=self._provider, content=self._content)
        if span is None:
            return
        begun = self._tracer.start_span(
            _writable_text(span.name),
            self._parents.extract(span.headers),
            SpanKind.CLIENT,
            _writable(span.attributes),
            start_time=int(span.started * _NANOSECONDS),
        )
        ended = int(span.ended * _NANOSECONDS)
        for event in span.events:
            begun.add_event(event.name, _writable(event.attributes), ended)
        if span.is_error:
            begun.set_status(Status(StatusCode.ERROR))
        begun.end(ended)

    def close(self) -> None:
        """Send what is queued, for at most `CLOSE_SECONDS`."""
        limit = Timer(CLOSE_SECONDS, self._give_up)
        limit.daemon = True
        limit.start()
        self._tracing.shutdown()
        self._metering.shutdown(CLOSE_SECONDS * 1000)
        limit.cancel()

    def _give_up(self) -> None:
        for exporter in self._exporters:
            exporter.shutdown()  # pyright: ignore[reportUnknownMemberType]

    def _count(self, built: BuiltExchange, applied: Sequence[Result], tokens: dict[str, int]) -> None:
        record = built.record
        labels = describe_call(built, provider=self._provider)
        if "gen_ai.request.model" in labels:  # clients choose it
            is_served = "error.type" not in labels
            labels["gen_ai.request.model"] = self._models.label(built.model, is_served=is_served)
        self._duration.record(record.seconds, labels)
        if built.is_stream and record.first_byte is not None:
            self._first_chunk.record(record.first_byte, labels)
        for kind, count in tokens.items():
            self._tokens.record(count, {**labels, "gen_ai.token.type": kind})
        self._answers.add(1, {**labels, "harmony.verdict": answer_verdict(built, applied)})
        for result in applied:
            about: Attributes = {"harmony.check": result.check, "harmony.check.severity": result.severity.value}
            self._results.add(1, {**about, "harmony.outcome": result.outcome.value})
        for action, checks in (
            ("repaired", record.repair_counts),
            ("blocked", record.blocked_checks),
            ("left", record.unrepaired_reasons),
        ):
            for check in checks:
                times = record.repair_counts[check] if action == "repaired" else 1
                self._actions.add(times, {"harmony.check": check, "harmony.action": action})


def _resource() -> Resource:
    """Return the resource: a default that the variables of the SDK overrule, and an id for each process."""
    named = {"service.name": "harmony-guard", "service.version": _VERSION, "service.instance.id": str(uuid.uuid4())}
    return Resource.create(named).merge(OTELResourceDetector().detect())


def _writable(attributes: Attributes) -> Attributes:
    """Return attributes that OTLP can have: protobuf refuses a batch for one lone surrogate."""
    return {
        name: _writable_text(value)
        if isinstance(value, str)
        else value
        if isinstance(value, bool | int | float)
        else [_writable_text(one) for one in value]
        for name, value in attributes.items()
    }


def _writable_text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


class _Reports(logging.Handler):
    """Prints the first warning and the first error of each part of the SDK, on standard error. State: those that have printed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[tuple[str, int]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if (key := (record.name, record.levelno)) not in self._printed:
            self._printed.add(key)
            message = escape_invisible(" ".join(record.getMessage().split()))
            sys.stderr.write(f"harmony guard: OpenTelemetry: {message}\n")


def _report_failures() -> None:
    log = logging.getLogger("opentelemetry")
    log.handlers = [_Reports()]
    log.propagate = False
