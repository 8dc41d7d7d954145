"""Measured proxies: how each is started, and why one is missing."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from answers import PATH, Plan, question

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
LITELLM = HERE.parent.parent / ".benchmarks" / "litellm" / "bin" / "litellm"
MITMPROXY = HERE.parent.parent / ".oracles" / "mitmproxy-12" / "bin"
"""The programs of the environment with mitmproxy, which needs a newer Python: `make .oracles/mitmproxy-12/.ready`."""
START_SECONDS = 120
STOP_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Place:
    """Location of a contender: its port, the port of the server behind it, and its folder."""

    port: int
    upstream: int
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "outcomes.jsonl"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A measured proxy.

    Attributes:
        label: name on the page.
        command: command that starts it; None for the server itself, with nothing before it.
        missing: reason why it cannot take part, or empty.
    """

    label: str
    command: Callable[[Place], list[str]] | None
    environment: Callable[[Place], Mapping[str, str]] = field(default=lambda place: {})
    missing: Callable[[], str] = field(default=lambda: "")


NGINX = """worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 16384; }}
http {{
  access_log off; keepalive_requests 1000000; keepalive_timeout 600s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream server {{ server 127.0.0.1:{upstream}; keepalive 2048; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}
  }}
}}
"""

LITELLM_CONFIG = """model_list:
  - model_name: gpt-oss-20b
    litellm_params: {{ model: openai/gpt-oss-20b, api_base: "http://127.0.0.1:{upstream}/v1", api_key: none }}
"""
LITELLM_ENVIRONMENT = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


def nginx(place: Place) -> list[str]:
    config = place.folder / "nginx.conf"
    config.write_text(NGINX.format(folder=place.folder, port=place.port, upstream=place.upstream), "utf-8")
    return [nginx_program() or "nginx", "-e", str(place.folder / "error.log"), "-c", str(config)]


def nginx_program() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def mitmdump(place: Place) -> list[str]:
    options = {
        "http2": "false",
        "flow_detail": "0",
        "connection_strategy": "lazy",
        "confdir": str(place.folder),
        "block_global": "false",
    }
    command = [str(MITMPROXY / "mitmdump"), "--quiet", "--mode", f"reverse:http://127.0.0.1:{place.upstream}"]
    command += ["--listen-host", "127.0.0.1", "--listen-port", str(place.port), "-s", str(HERE / "stream_true.py")]
    return command + [part for name, value in options.items() for part in ("--set", f"{name}={value}")]


def ours(*options: str, programs: Path = BIN) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        here, there = f"127.0.0.1:{place.port}", f"openai:http://127.0.0.1:{place.upstream}"
        program = [str(programs / "harmony-conformance"), "proxy"]
        return [*program, "--upstream", there, "--listen", here, "--log", str(place.log), *options]

    return command


def unguarded(place: Place) -> list[str]:
    return [sys.executable, str(HERE / "unguarded.py"), f"http://127.0.0.1:{place.upstream}", str(place.port)]


def uvicorn(*app: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        options = [
            "--loop",
            "uvloop",
            "--http",
            "httptools",
            "--no-access-log",
            "--log-level",
            "error",
            "--backlog",
            "4096",
        ]
        return [
            str(BIN / "uvicorn"),
            *app,
            "--app-dir",
            str(HERE),
            "--host",
            "127.0.0.1",
            "--port",
            str(place.port),
            *options,
        ]

    return command


def litellm(place: Place) -> list[str]:
    config = place.folder / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(upstream=place.upstream), "utf-8")
    return [
        str(LITELLM),
        "--config",
        str(config),
        "--host",
        "127.0.0.1",
        "--port",
        str(place.port),
        "--telemetry",
        "False",
    ]


def needs(module: str) -> Callable[[], str]:
    return lambda: "" if _found(module) else f"{module} is not there"


def without_mitmproxy() -> str:
    return "" if (MITMPROXY / "mitmdump").exists() else "not installed (make .oracles/mitmproxy-12/.ready; Python 3.12)"


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


CONTENDERS = {
    "direct": Contender(label="nothing between", command=None),
    "nginx": Contender(
        label="nginx", command=nginx, missing=lambda: "" if nginx_program() else "not installed (apt-get install nginx)"
    ),
    "mitmdump": Contender(label="mitmdump, `stream=True`", command=mitmdump, missing=without_mitmproxy),
    "addon": Contender(
        label="our mitmproxy addon", command=ours("--mitmproxy", programs=MITMPROXY), missing=without_mitmproxy
    ),
    "unguarded": Contender(
        label="our proxy, the guard taken out", command=unguarded, missing=needs("harmony_proxy.standalone.server")
    ),
    "standalone": Contender(label="**our proxy**", command=ours(), missing=needs("harmony_proxy.standalone.server")),
    "app": Contender(label="bare ASGI app", command=uvicorn("app:bare")),
    "app+guard": Contender(
        label="**the app in HarmonyGuard**",
        command=uvicorn("app:guarded", "--factory"),
        environment=lambda place: {"HARMONY_GUARD_LOG": str(place.log)},
        missing=needs("harmony_proxy.asgi"),
    ),
    "litellm": Contender(
        label="litellm",
        command=litellm,
        environment=lambda place: LITELLM_ENVIRONMENT,
        missing=lambda: "" if LITELLM.exists() else "not installed (make .benchmarks/litellm/.ready; 0.6 GB)",
    ),
}


class NotStartedError(Exception):
    """A contender that ended at once, or gave no answer in time."""


class Running:
    """A started contender that answers."""

    def __init__(self, name: str, upstream: "Running | None", folder: Path) -> None:
        self.name = name
        self.contender = CONTENDERS[name]
        own = folder / name.replace("+", "-")
        own.mkdir(parents=True)
        self.place = Place(port=free_port(), upstream=upstream.port if upstream else 0, folder=own)
        self.port = self.place.port
        command = self.contender.command
        made = command(self.place) if command else [sys.executable, str(HERE / "upstream.py"), str(self.port)]
        self.output = own / "output.txt"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                made, stdout=output, stderr=output, env={**os.environ, **self.contender.environment(self.place)}
            )
        self.pid = self.process.pid
        self._await()

    def stop(self) -> str:
        """Stop it as a user would, and return its output."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return self.said()

    def said(self) -> str:
        return self.output.read_text("utf-8", "replace")

    def _await(self) -> None:
        stop = time.monotonic() + START_SECONDS
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{PATH}", question(Plan()), {"content-type": "application/json"}
        )
        while time.monotonic() < stop and self.process.poll() is None:
            try:
                with urllib.request.urlopen(asked, timeout=20) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise NotStartedError(f"{self.name} does not answer: {self.said()[-500:]}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
