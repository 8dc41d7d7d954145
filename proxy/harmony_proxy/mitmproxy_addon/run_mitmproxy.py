"""Run mitmproxy in this process: reverse mode, HTTP/1, the conformance addon; with a graceful shutdown."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from urllib.parse import urlsplit

from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.options import Options
from mitmproxy.tools.dump import DumpMaster

from harmony_conformance.errors import Exit, UsageError
from harmony_proxy.configuration import Rules, start_metrics
from harmony_proxy.judging.console import announce, print_line
from harmony_proxy.judging.counters import summary_line
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.mitmproxy_addon.hooks import ConformanceAddon


def run_mitmproxy(  # noqa: PLR0913 - all settings
    upstream: str,
    host: str,
    port: int,
    settings: JudgeSettings,
    *,
    rules: Rules | None = None,
    metrics: tuple[str, int] | None = None,
) -> int:
    """Run until SIGINT or SIGTERM; then judge the queue, close the log, print the summary."""
    logging.getLogger("mitmproxy").setLevel(logging.CRITICAL)
    split = urlsplit(upstream)
    with tempfile.TemporaryDirectory(prefix="harmony-proxy-") as folder:
        queue = JudgeQueue(
            settings, on_message=print_line, memory_limit=rules.memory_limit if rules is not None else None
        )
        addon = ConformanceAddon(queue, rules=rules, prefix=split.path)
        queue.start()
        stop_metrics = start_metrics(metrics, queue, addon.gauges, upstream)
        try:
            asyncio.run(_serve(f"{split.scheme}://{split.netloc}", host, port, folder, addon))
        except SystemExit:  # mitmproxy could not start
            raise UsageError(f"mitmproxy could not start on {host}:{port}") from None
        finally:
            stop_metrics()
            addon.shut_down()
            queue.close()
    print_line(summary_line(queue.tally))
    return Exit.CONFORMS


async def _serve(upstream: str, host: str, port: int, folder: str, addon: ConformanceAddon) -> None:
    options = Options(
        mode=[f"reverse:{upstream}"],
        listen_host=host,
        listen_port=port,
        confdir=folder,  # for certificates, which are not used here
        http2=False,  # one HTTP/2 client would get at most five upstream connections
    )
    master = DumpMaster(options, with_termlog=False, with_dumper=False)
    # lazy: with eager connections and no server, mitmproxy disconnects the client, without a 502 and without a flow
    options.update(onboarding=False, block_global=False, connection_strategy="lazy")
    master.addons.add(_Announcement(master, upstream), addon)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        addon.shut_down()  # before mitmproxy aborts open flows, which would look like disconnects of clients
        master.shutdown()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await master.run()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # tasks that are cancelled from here on are not errors


class _Announcement:
    """Prints the address of the proxy when it listens."""

    def __init__(self, master: DumpMaster, upstream: str) -> None:
        self._master, self._upstream = master, upstream

    def running(self) -> None:
        """Print the address: the sockets are open."""
        server: object = self._master.addons.get("proxyserver")
        if isinstance(server, Proxyserver):
            host, port = server.listen_addrs()[0][:2]
            announce(host, port, self._upstream)
