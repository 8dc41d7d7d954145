"""mitmproxy in this process: reverse mode, HTTP/1, our addon; and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.options import Options
from mitmproxy.tools.dump import DumpMaster

from harmony_conformance.audit.excerpt import Excerpts
from harmony_conformance.checks import CHECKS
from harmony_conformance.command import Exit, UsageError
from harmony_conformance.json_value import JsonObject, dumps, items, text
from harmony_proxy.addon import ConformanceAddon
from harmony_proxy.judging import Judging, Write

_SWITCH_SECONDS = 0.0005
"""How long the judging thread may keep the interpreter while bytes wait to be passed on."""


def watch(upstream: str, host: str, port: int, *, log: Path | None, excerpts: Excerpts) -> int:
    """Run until SIGINT or SIGTERM; then judge what is queued, close the log, print the summary."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.getLogger("mitmproxy").setLevel(logging.CRITICAL)
    split = urlsplit(upstream)
    with _writing(log) as write, tempfile.TemporaryDirectory(prefix="harmony-proxy-") as folder:
        judging = Judging(CHECKS, write, excerpts=excerpts)
        addon = ConformanceAddon(judging, prefix=split.path)
        judging.start()
        try:
            asyncio.run(_serve(f"{split.scheme}://{split.netloc}", host, port, folder, addon))
        except SystemExit:  # mitmproxy's way to say that it could not start
            raise UsageError(f"mitmproxy could not start on {host}:{port}") from None
        finally:
            addon.shut_down()
            judging.close()
    _say(str(judging.summary))
    return Exit.CONFORMS


async def _serve(upstream: str, host: str, port: int, folder: str, addon: ConformanceAddon) -> None:
    options = Options(
        mode=[f"reverse:{upstream}"],
        listen_host=host,
        listen_port=port,
        confdir=folder,  # mitmproxy writes certificates there, which nobody here needs
        http2=False,  # one HTTP/2 client would get five upstream connections and no more
    )
    master = DumpMaster(options, with_termlog=False, with_dumper=False)
    # lazy: connecting eagerly, mitmproxy answers a client whose server is not there by hanging up, without a 502 and without a flow
    options.update(onboarding=False, block_global=False, connection_strategy="lazy")  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
    master.addons.add(_Announced(master, upstream), addon)  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, master.shutdown)
    await master.run()


class _Announced:
    """Says where the proxy listens, once it does."""

    def __init__(self, master: DumpMaster, upstream: str) -> None:
        self._master = master
        self._upstream = upstream

    def running(self) -> None:
        """The sockets are open."""
        server: object = self._master.addons.get("proxyserver")  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
        if isinstance(server, Proxyserver):
            host, port = server.listen_addrs()[0][:2]
            shown = f"[{host}]" if ":" in host else host
            _say(f"listening on http://{shown}:{port}, passing on to {self._upstream}")


@contextmanager
def _writing(log: Path | None) -> Generator[Write]:
    """What writes a line of the log at once; without a file, failures are printed."""
    if log is None:
        yield _print_failure
        return
    try:
        file = log.open("ab", buffering=0)
    except OSError as problem:
        raise UsageError(f"--log {log}: {problem.strerror}") from None
    with file:

        def write(line: JsonObject) -> None:
            file.write(dumps(line).encode("utf-8", "backslashreplace") + b"\n")

        yield write


def _print_failure(line: JsonObject) -> None:
    failed = ", ".join(text(check) for check in items(line.get("failed")))
    if failed:
        _say(f"exchange {line['id']}: HTTP {line['status']}, {line['end']}, failed {failed}")


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()
