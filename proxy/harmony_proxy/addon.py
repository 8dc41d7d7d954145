"""The mitmproxy addon, configured by mitmproxy's options.

mitmdump -s "$(python -m harmony_proxy.addon)" --mode reverse:http://127.0.0.1:8000 --set http2=false --set harmony_log=outcomes.jsonl
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

try:
    from mitmproxy import ctx
    from mitmproxy.addonmanager import Loader
    from mitmproxy.exceptions import OptionsError
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    from harmony_ref.extras import install_command

    sys.exit(f"mitmproxy is not installed: {install_command('mitmproxy')}")

from harmony_conformance.errors import UsageError
from harmony_proxy.configuration import (
    InvalidSettingError,
    Rules,
    load_rules,
    parse_metrics_address,
    parse_receiver,
    start_metrics,
)
from harmony_proxy.judging.counters import summary_line
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import EXCERPT_MODES, NONE, JudgeSettings
from harmony_proxy.judging.log_file import append_error
from harmony_proxy.mitmproxy_addon.hooks import ConformanceAddon
from harmony_proxy.policy.policy import FailMode

_LOG = logging.getLogger("harmony_proxy")


class Configured:
    """The addon for `mitmdump -s`, configured by mitmproxy's options. Rules may change at run time, other settings not."""

    def __init__(self) -> None:
        self.addons: list[ConformanceAddon] = []
        self._queue: JudgeQueue | None = None
        self._settings = JudgeSettings()
        self._stop_metrics: Callable[[], None] | None = None

    def load(self, loader: Loader) -> None:
        """Register the options."""
        modes = [mode.value for mode in FailMode]
        for name, kind, default, description, choices in (
            ("log", str, "", "Append one JSON line for each exchange to this file.", None),
            ("policy", str, "", "A TOML file: the action for each check and route.", None),
            ("repair", Sequence[str], (), "Patterns of the ids of checks that are repaired.", None),
            ("block", Sequence[str], (), "Patterns of the ids of checks for which a response is blocked.", None),
            ("fail", str, "open", "Pass (open) or block (closed) responses that cannot be examined.", modes),
            (
                "memory_limit",
                str,
                "",
                "Memory of all exchanges in flight, such as 256M (default); read at the start.",
                None,
            ),
            ("reasoning_field", str, "", "Name of the reasoning field in repaired responses.", None),
            ("metrics", str, "", "HOST:PORT, for Prometheus; read at the start.", None),
            ("fallback", str, "observe", "Action on responses that cannot be repaired.", ["observe", "block"]),
            ("excerpts", str, NONE, "Traffic quoted in the log.", list(EXCERPT_MODES)),
            (
                "capture",
                str,
                NONE,
                "Samples of failing exchanges, and before and after of repairs, in the log.",
                list(EXCERPT_MODES),
            ),
            ("otel", str, "", "URL of an OTLP/HTTP receiver, for spans and metrics of OpenTelemetry.", None),
            ("otel_content", str, NONE, "Messages in spans.", list(EXCERPT_MODES)),
            ("engine", str, "openai", "The engine of the server, as in --upstream.", None),
        ):
            loader.add_option(f"harmony_{name}", kind, default, description, choices)

    def configure(self, updated: set[str]) -> None:
        """Apply changed options.

        Raises:
            OptionsError: an option has an invalid value, or cannot be changed at run time.
        """
        if not any(name.startswith("harmony_") or name == "stream_large_bodies" for name in updated):
            return
        rules, _ = _rules(), _metrics()
        if not rules.policy.observes and ctx.options.stream_large_bodies:
            raise _invalid("stream_large_bodies cannot be combined with repair or block: large responses would pass")
        settings = _settings()
        if self._queue is not None and settings != self._settings:
            raise _invalid("settings of the judge and the log are read at the start: restart mitmproxy to change them")
        self._settings = settings
        if not self.addons:
            self._queue = JudgeQueue(settings, on_message=_LOG.info, memory_limit=rules.memory_limit)
            self.addons = [ConformanceAddon(self._queue)]
        self.addons[0].rules = rules

    def running(self) -> None:
        """Start the judge."""
        if not self.addons:
            self.configure({"harmony_log"})
        if self._queue is not None:
            self._queue.start()
            try:
                self._stop_metrics = start_metrics(_metrics(), self._queue, self.addons[0].gauges)
            except UsageError as problem:
                _LOG.error("harmony_metrics: %s", problem)
        if ctx.options.http2:
            _LOG.warning("one HTTP/2 client gets at most five connections to a server: use --set http2=false")

    def done(self) -> None:
        """Have the queue judged, and log the summary."""
        if self._stop_metrics is not None:
            self._stop_metrics()
            self._stop_metrics = None
        for addon in self.addons:
            addon.shut_down()
        if self._queue is not None:
            self._queue.close()
            _LOG.info(summary_line(self._queue.tally))
        self.addons, self._queue = [], None


def _metrics() -> tuple[str, int] | None:
    try:
        return parse_metrics_address(ctx.options.harmony_metrics)
    except InvalidSettingError as problem:
        raise _invalid(f"harmony_metrics: {problem}") from None


def _rules() -> Rules:
    if ctx.options.harmony_reasoning_field and not (ctx.options.harmony_repair or ctx.options.harmony_block):
        raise _invalid(
            "harmony_reasoning_field requires harmony_repair or harmony_block; a policy file has its own setting"
        )
    try:
        return load_rules(
            Path(ctx.options.harmony_policy).expanduser() if ctx.options.harmony_policy else None,
            repair=_split(ctx.options.harmony_repair),
            block=_split(ctx.options.harmony_block),
            fail=ctx.options.harmony_fail,
            fallback=ctx.options.harmony_fallback,
            reasoning_field=ctx.options.harmony_reasoning_field or None,
            memory_limit=ctx.options.harmony_memory_limit or None,
        )
    except InvalidSettingError as problem:
        raise _invalid(f"harmony_policy, harmony_repair, harmony_block, harmony_fail: {problem}") from None


def _settings() -> JudgeSettings:
    log = Path(ctx.options.harmony_log).expanduser() if ctx.options.harmony_log else None
    if problem := append_error(log):
        raise _invalid(f"harmony_log: {log}: {problem}")
    for name in ("harmony_excerpts", "harmony_capture", "harmony_otel_content"):
        if (value := getattr(ctx.options, name)) not in EXCERPT_MODES:
            raise _invalid(f"invalid {name}: expected one of {', '.join(EXCERPT_MODES)}, got {value!r}")
    try:
        otel = parse_receiver(ctx.options.harmony_otel)
    except InvalidSettingError as problem:
        raise _invalid(f"harmony_otel: {problem}") from None
    return JudgeSettings(
        log=log,
        excerpts=ctx.options.harmony_excerpts,
        capture=ctx.options.harmony_capture,
        engine=ctx.options.harmony_engine,
        otel=otel,
        otel_content=ctx.options.harmony_otel_content,
    )


def _invalid(message: str) -> OptionsError:
    return OptionsError(message)


def _split(values: Sequence[str]) -> list[str]:
    return [pattern.strip() for value in values for pattern in value.split(",") if pattern.strip()]


addons = [Configured()]

if __name__ == "__main__":
    sys.stdout.write(f"{Path(__file__).resolve()}\n")
