"""The mitmproxy addon, set by mitmproxy's own options.

mitmdump -s "$(python -m harmony_proxy.addon)" --mode reverse:http://127.0.0.1:8000 --set http2=false --set harmony_log=outcomes.jsonl
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

try:
    from mitmproxy import ctx
    from mitmproxy.addonmanager import Loader
    from mitmproxy.exceptions import OptionsError
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    sys.exit("mitmproxy is not installed: pip install 'harmony-conformance[mitmproxy]'")

from harmony_proxy.configuration import InvalidSettingError, Rules, load_rules
from harmony_proxy.judging.counters import sentence
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import NONE, QUOTING, JudgeSettings
from harmony_proxy.mitmproxy_addon.hooks import ConformanceAddon
from harmony_proxy.policy.policy import FailMode

_LOG = logging.getLogger("harmony_proxy")


class Configured:
    """The addon as mitmproxy's own options set it: for `mitmdump -s`. Rules may change while it runs; how exchanges are judged is read at the start."""

    def __init__(self) -> None:
        self.addons: list[ConformanceAddon] = []
        self._handing: JudgeQueue | None = None
        self._settings = JudgeSettings()

    def load(self, loader: Loader) -> None:
        """Name the options."""
        many: Sequence[str] = ()
        kinds = list(QUOTING)
        modes = [mode.value for mode in FailMode]
        for name, kind, default, said, choices in (
            ("log", str, "", "Append one JSON line for each exchange to this file.", None),
            ("policy", str, "", "A TOML file that says what is done about which check on which route.", None),
            ("repair", Sequence[str], many, "Patterns of the ids of checks that are repaired.", None),
            ("block", Sequence[str], many, "Patterns of the ids of checks for which an answer is blocked.", None),
            ("fail", str, "open", "What becomes of an answer that could not be examined.", modes),
            ("fallback", str, "observe", "What becomes of an answer that a repair cannot mend.", ["observe", "block"]),
            ("excerpts", str, NONE, "What of the traffic the findings in the log quote.", kinds),
            ("capture", str, NONE, "Whether the log holds samples of failing exchanges.", kinds),
            ("engine", str, "openai", "The engine that answers, as in --upstream.", None),
        ):
            loader.add_option(f"harmony_{name}", kind, default, said, choices)  # pyright: ignore[reportUnknownMemberType]

    def configure(self, updated: set[str]) -> None:
        """Options were set.

        Raises:
            OptionsError: to what cannot be.
        """
        if not any(name.startswith("harmony_") or name == "stream_large_bodies" for name in updated):
            return
        rules = _rules()
        if not rules.policy.observes and ctx.options.stream_large_bodies:
            raise _refused("stream_large_bodies would let answers past a policy that acts: set one of them")
        settings = _settings()
        if self._handing is not None and settings != self._settings:
            raise _refused("how exchanges are judged and logged is read at the start: start mitmproxy again")
        self._settings = settings
        if not self.addons:
            self._handing = JudgeQueue(settings, say=_LOG.info)
            self.addons = [ConformanceAddon(self._handing)]
        self.addons[0].rules = rules

    def running(self) -> None:
        """Begin to judge."""
        if not self.addons:
            self.configure({"harmony_log"})
        if self._handing is not None:
            self._handing.start()
        if ctx.options.http2:
            _LOG.warning("one HTTP/2 client gets five connections to a server and no more: --set http2=false")

    def done(self) -> None:
        """Have what is queued judged, and sum up."""
        for addon in self.addons:
            addon.shut_down()
        if self._handing is not None:
            self._handing.close()
            _LOG.info(sentence(self._handing.tally))
        self.addons, self._handing = [], None


def _rules() -> Rules:
    try:
        return load_rules(
            Path(ctx.options.harmony_policy).expanduser() if ctx.options.harmony_policy else None,
            repair=_listed(ctx.options.harmony_repair),
            block=_listed(ctx.options.harmony_block),
            fail=ctx.options.harmony_fail,
            fallback=ctx.options.harmony_fallback,
        )
    except InvalidSettingError as problem:
        raise _refused(f"harmony_policy, harmony_repair, harmony_block, harmony_fail: {problem}") from None


def _settings() -> JudgeSettings:
    log = Path(ctx.options.harmony_log).expanduser() if ctx.options.harmony_log else None
    if log is not None:
        try:
            log.open("ab").close()
        except OSError as problem:
            raise _refused(f"harmony_log: {log}: {problem.strerror}") from None
    for name in ("excerpts", "capture"):
        if getattr(ctx.options, f"harmony_{name}") not in QUOTING:
            raise _refused(f"harmony_{name} is one of {', '.join(QUOTING)}")
    return JudgeSettings(
        log=log,
        excerpts=ctx.options.harmony_excerpts,
        capture=ctx.options.harmony_capture,
        engine=ctx.options.harmony_engine,
    )


def _refused(what: str) -> OptionsError:
    return OptionsError(what)  # type: ignore[no-untyped-call]


def _listed(patterns: Sequence[str]) -> list[str]:
    return [pattern.strip() for told in patterns for pattern in told.split(",") if pattern.strip()]


addons = [Configured()]

if __name__ == "__main__":
    sys.stdout.write(f"{Path(__file__).resolve()}\n")
