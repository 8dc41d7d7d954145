"""Write the logs of this folder with the software that writes them in real use, against a server on loopback with one fixed answer.

    python make_logs.py FOLDER

Needs litellm 1.106, langfuse 5.0, openinference-instrumentation-openai 0.1.66, opentelemetry-sdk 1.45, opentelemetry-util-genai 1.3b0,
opentelemetry-exporter-otlp-proto-common 1.45 (with opentelemetry-proto), opentelemetry-instrumentation-openai-v2 2.3b0, wrapt below 2, mcp.
None of them is a dependency of this project, so the files are stored.
"""

import asyncio
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"

FOLDER = Path(sys.argv[1])
MODEL = "gpt-oss-20b"
LEAK = "Hello.<|end|><|start|>assistant<|channel|>final<|message|>Hello."
MESSAGES = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
ENVELOPE = {"id": "chatcmpl-1", "created": 1, "model": MODEL}
ANSWER = {
    **ENVELOPE,
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": LEAK, "reasoning_content": "We greet."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 70, "completion_tokens": 19, "total_tokens": 89},
}


class FixedAnswer(BaseHTTPRequestHandler):
    """Answers each request with the same text, as a stream if that is requested."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        if not body.get("stream"):
            data = json.dumps(ANSWER).encode()
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        deltas = [
            {"role": "assistant", "content": ""},
            *({"content": LEAK[at : at + 7]} for at in range(0, len(LEAK), 7)),
        ]
        for delta, reason in [*((one, None) for one in deltas), ({}, "stop")]:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            event = {**ENVELOPE, "object": "chat.completion.chunk", "choices": [choice]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


def tracing():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider


def write_otlp(name, encoded):
    """Write the lines that the collector's file exporter writes: OTLP in JSON."""
    from google.protobuf.json_format import MessageToJson

    (FOLDER / name).write_text(MessageToJson(encoded, indent=None) + "\n", encoding="utf-8")


def encode(exporter):
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return encode_spans(exporter.get_finished_spans())


def openinference(base):
    import openai
    from openinference.instrumentation.openai import OpenAIInstrumentor

    exporter, provider = tracing()
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    client = openai.OpenAI(base_url=base, api_key="none")
    client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS)
    list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    OpenAIInstrumentor().uninstrument()
    write_otlp("openinference.otlp.jsonl", encode(exporter))


def otel_spans(_):
    from opentelemetry.util.genai.handler import TelemetryHandler
    from opentelemetry.util.genai.types import InputMessage, OutputMessage, ReasoningPart, TextPart, ToolCallRequestPart

    exporter, provider = tracing()
    handler = TelemetryHandler(tracer_provider=provider)
    call = ToolCallRequestPart(name="get_weather", arguments={"city": "Oslo"}, id="call_1")
    for parts in ([ReasoningPart(content="We greet."), TextPart(content=LEAK)], [call]):
        with handler.inference("openai", request_model=MODEL) as span:
            span.input_messages = [InputMessage(role="user", parts=[TextPart(content="Hi")])]
            span.output_messages = [OutputMessage(role="assistant", parts=parts, finish_reason="stop")]
    write_otlp("otel_spans.otlp.jsonl", encode(exporter))
    printed = "".join(span.to_json() + "\n" for span in exporter.get_finished_spans())
    (FOLDER / "otel_spans.console.json").write_text(printed, encoding="utf-8")


def otel_events(base):
    import openai
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
    exporter, provider = InMemoryLogRecordExporter(), LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    OpenAIInstrumentor().instrument(tracer_provider=tracing()[1], logger_provider=provider)
    openai.OpenAI(base_url=base, api_key="none").chat.completions.create(model=MODEL, messages=MESSAGES)
    OpenAIInstrumentor().uninstrument()
    write_otlp("otel_events.otlp.jsonl", encode_logs(exporter.get_finished_logs()))


def langfuse(_):
    from langfuse import Langfuse

    exporter, _provider = tracing()
    client = Langfuse(public_key="none", secret_key="none", base_url="http://127.0.0.1:9", span_exporter=exporter)
    with client.start_as_current_observation(name="greet", as_type="generation", model=MODEL, input=MESSAGES) as one:
        one.update(output={"role": "assistant", "content": LEAK})
    client.flush()
    write_otlp("langfuse.otlp.jsonl", encode(exporter))


def litellm(base):
    import litellm as library
    from litellm.integrations.custom_logger import CustomLogger

    payloads = []

    class Collector(CustomLogger):
        async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
            payloads.append(kwargs["standard_logging_object"])

    async def call():
        price = {"input_cost_per_token": 0, "output_cost_per_token": 0, "litellm_provider": "openai", "mode": "chat"}
        library.register_model({MODEL: price, f"openai/{MODEL}": price})  # or each payload has a traceback
        library.callbacks = [Collector()]
        options = {"model": f"openai/{MODEL}", "api_base": base, "api_key": "none", "messages": MESSAGES}
        await library.acompletion(**options, tools=TOOLS)
        async for _ in await library.acompletion(**options, stream=True):
            pass
        while len(payloads) < 2:  # noqa: ASYNC110 - the callbacks run in a loop of their own
            await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(call(), 60))
    lines = "".join(json.dumps(payload, default=str) + "\n" for payload in payloads)
    (FOLDER / "litellm_callback.jsonl").write_text(lines, encoding="utf-8")


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), FixedAnswer)
    Thread(target=server.serve_forever, daemon=True).start()
    for write in (openinference, otel_spans, otel_events, langfuse, litellm):
        write(f"http://127.0.0.1:{server.server_port}/v1")


if __name__ == "__main__":
    main()
