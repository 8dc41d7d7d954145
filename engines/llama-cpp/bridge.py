"""HTTP for builds of xllamacpp without it (0.2.6, b7079, and older): their server runs in this process.

Bodies are the server's. The frames of events, `[DONE]` and the status of an error are added here: an exception becomes HTTP 500.
"""

import json
import os
import signal
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol


class Asked(Protocol):
    """The methods of `xllamacpp.Server` in use."""

    def handle_chat_completions(self, body: str, callback: Callable[[str], None]) -> None:
        """Answer, in one call of the callback or in one for each chunk."""


def outlived(port: int) -> socket.socket:
    """Return a listening socket that survives crashes of the server, which are frequent in b6751.

    A crashed process is replaced by a new one, as an operator would do. Clients wait meanwhile.
    """
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    while child := os.fork():
        signal.signal(signal.SIGTERM, lambda *_, child=child: os.kill(child, signal.SIGTERM))
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            os._exit(os.waitstatus_to_exitcode(status))
        print("the server ended by signal", os.WTERMSIG(status), "and is started again", flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return listening


def bridge(server: Asked, alias: str, listening: socket.socket) -> ThreadingHTTPServer:
    """Return an HTTP server in front of the given server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            known = {"/health": {"status": "ok"}, "/v1/models": {"data": [{"id": alias, "owned_by": "llamacpp"}]}}
            self._whole(200 if self.path in known else 404, known.get(self.path, {}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode("utf-8", "replace")
            if self.path != "/v1/chat/completions":
                self._whole(404, {"error": {"code": 404, "message": "File Not Found"}})
                return
            try:
                is_stream = json.loads(body).get("stream") is True
            except (AttributeError, ValueError):
                is_stream = False
            said: list[str] = []
            problem = ""
            try:
                server.handle_chat_completions(body, self._event if is_stream else said.append)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the server's
                problem = str(error)
            error = {"error": {"code": 500, "message": problem, "type": "server_error"}}
            if not self.is_begun:
                first = error if problem or not said else json.loads(said[0])
                self._whole(int(first["error"].get("code", 500)) if "error" in first else 200, first)
            else:
                self._frame(f"data: {json.dumps(error)}\n\n" if problem else "data: [DONE]\n\n")
                self.wfile.write(b"0\r\n\r\n")
            self.is_begun = False

        is_begun = False

        def _event(self, chunk: str) -> None:
            if not self.is_begun:
                self.is_begun = True
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
            self._frame(f"data: {chunk}\n\n")

        def _frame(self, text: str) -> None:
            data = text.encode("utf-8", "replace")
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

        def _whole(self, status: int, body: object) -> None:
            data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing: the server logs."""

    found = ThreadingHTTPServer(listening.getsockname(), Handler, bind_and_activate=False)
    found.socket.close()
    found.socket = listening
    return found
