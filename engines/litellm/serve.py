"""Serve LiteLLM before `harmony-conformance serve`, with the relay around it, until interrupted.

    serve.py --port PORT --behind chat|responses|messages

All ports but the first are free ones of 127.0.0.1. Both servers are children of this process and end with it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import uvicorn
from relay import Relay

HERE = Path(__file__).parent
LITELLM = HERE.parents[1] / ".engines" / "litellm" / "venv" / "bin" / "litellm"
NO_NETWORK = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "DISABLE_ADMIN_UI": "True"}


def main() -> int:
    """Start the children, serve, and stop them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--behind", choices=("chat", "responses", "messages"), required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    command = [str(Path(sys.executable).parent / "harmony-conformance"), "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            return _serve_gateway(options.port, options.behind, _server_url(server))
        finally:
            server.terminate()


def _serve_gateway(port: int, behind: str, server: str) -> int:
    own = socket.create_server(("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as free:
        gateway_port = free.getsockname()[1]
    key = f"sk-{secrets.token_hex(32)}"  # LiteLLM does not start without one
    url = f"http://127.0.0.1:{own.getsockname()[1]}"
    environment = {
        **os.environ,
        **NO_NETWORK,
        "LITELLM_MASTER_KEY": key,
        "SERVER_URL": url if behind == "messages" else f"{url}/v1",  # its Anthropic provider adds /v1 itself
    }
    arguments = ("--config", str(HERE / f"before-{behind}.yaml"), "--host", "127.0.0.1", "--port", str(gateway_port))
    with subprocess.Popen([str(LITELLM), *arguments], env=environment) as gateway:
        try:
            relay = Relay(f"http://127.0.0.1:{gateway_port}", server, key)
            asyncio.run(_serve(relay, port, own))
        finally:
            gateway.terminate()
    return 0


async def _serve(relay: Relay, port: int, own: socket.socket) -> None:
    # a busy machine must not look like a server that resets connections
    front = uvicorn.Config(relay.front(), port=port, log_level="warning", server_header=False, timeout_keep_alive=120)
    behind = uvicorn.Config(relay.behind(), log_level="warning", server_header=False, timeout_keep_alive=120)
    await asyncio.gather(uvicorn.Server(front).serve(), uvicorn.Server(behind).serve(sockets=[own]))


def _server_url(server: subprocess.Popen[str]) -> str:
    line = server.stdout.readline().strip() if server.stdout is not None else ""
    if not line:
        sys.exit("harmony-conformance serve did not start")
    return line.removesuffix("/v1")


if __name__ == "__main__":
    sys.exit(main())
