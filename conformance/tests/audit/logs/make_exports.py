"""Write logs of this folder with the software that writes them in real use, against `harmony-conformance serve --defect raw-call-in-content`.

    python make_exports.py NAME FOLDER URL

NAME is one of the functions below, URL the base of the server. Each needs an environment of its own, as its comment says. For `calls`, URL is
that of `mitmdump --mode reverse:SERVER -w mitmproxy.flows --set hardump=mitmproxy.har` (mitmproxy 12.2.3). None is a dependency of this project.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

MODEL = "gpt-oss-reference"
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the weather in Oslo?"},
]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "get_weather", "description": "The weather of a city.", "parameters": PARAMETERS}
CALL = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"}


def calls(_, url):
    """Send a call that leaks, an answer, a stream that leaks, and a response. Needs openai."""
    import openai

    client = openai.OpenAI(base_url=url, api_key="none")
    client.chat.completions.create(model=MODEL, messages=MESSAGES, **CALL)
    client.chat.completions.create(model=MODEL, messages=MESSAGES)
    list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, **CALL))
    client.responses.create(model=MODEL, input="Hi")


def spans():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider


def write_spans(path, exporter):
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    encoded = encode_spans(exporter.get_finished_spans())
    path.write_text(MessageToJson(encoded, indent=None) + "\n", encoding="utf-8")


def traceloop(folder, url):
    """opentelemetry-instrumentation-openai 0.62.4 with opentelemetry-sdk 1.45.1; `traceloop_numbered`: 0.46.2 with 1.36.0 and openai below 2."""
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    exporter, provider = spans()
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    calls(folder, url)
    write_spans(folder / "traceloop.otlp.jsonl", exporter)


def openai_v2(folder, url):
    """opentelemetry-instrumentation-openai-v2 2.4b0, opentelemetry-util-genai 0.4b0, opentelemetry-sdk 1.44.0, openai 1.109.1."""
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_AND_EVENT"
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

    exporter, provider = spans()
    events, logger = InMemoryLogRecordExporter(), LoggerProvider()
    logger.add_log_record_processor(SimpleLogRecordProcessor(events))
    OpenAIInstrumentor().instrument(tracer_provider=provider, logger_provider=logger)
    calls(folder, url)
    write_spans(folder / "openai_v2_spans.otlp.jsonl", exporter)
    text = MessageToJson(encode_logs(events.get_finished_logs()), indent=None)
    (folder / "openai_v2_events.otlp.jsonl").write_text(text + "\n", encoding="utf-8")


def litellm_spend_logs(folder, url):
    """Rows of the table LiteLLM_SpendLogs, as LiteLLM 1.106.12 makes them for its database. Needs litellm[proxy]."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.proxy import proxy_server
    from litellm.proxy.spend_tracking.spend_tracking_utils import get_logging_payload

    proxy_server.general_settings["store_prompts_in_spend_logs"] = True
    price = {"input_cost_per_token": 0, "output_cost_per_token": 0, "litellm_provider": "openai", "mode": "chat"}
    litellm.register_model({MODEL: price, f"openai/{MODEL}": price})
    rows = []

    class Collector(CustomLogger):
        async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
            rows.append(get_logging_payload(kwargs, response_obj, start_time, end_time))

    async def send():
        litellm.callbacks = [Collector()]
        options = {"model": f"openai/{MODEL}", "api_base": url, "api_key": "none", "messages": MESSAGES}
        sent = {"url": url, "method": "POST", "headers": {}, "body": {"model": MODEL, "messages": MESSAGES, **CALL}}
        await litellm.acompletion(**options, **CALL, proxy_server_request=sent)
        async for _ in await litellm.acompletion(**options, stream=True):
            pass
        while len(rows) < 2:  # noqa: ASYNC110 - the callbacks run in a loop of their own
            await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(send(), 60))
    lines = "".join(json.dumps(row, default=str) + "\n" for row in rows)
    (folder / "litellm_spend_logs.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    made = {one.__name__: one for one in (calls, traceloop, openai_v2, litellm_spend_logs)}
    made[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
