"""Reload of the policy, and of the log after rotation, on SIGHUP. The previous policy stays in force if the new one is invalid or empty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from harmony_conformance.errors import UsageError
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.configuration import Rules
from harmony_proxy.judging.log_file import append_error


class Reloader:
    """Reloads what a running proxy reads from files. `read_rules` is None without a policy file; it raises `UsageError`."""

    def __init__(
        self,
        guard: HarmonyGuard,
        *,
        read_rules: Callable[[], Rules] | None,
        log: Path | None,
        on_message: Callable[[str], None],
    ) -> None:
        self._guard, self._read_rules, self._log, self._on_message = guard, read_rules, log, on_message
        self._lock = asyncio.Lock()

    async def reload(self) -> None:
        """Reload, and report the result by one line for the policy and one for the log."""
        async with self._lock:
            if self._read_rules is not None:
                self._on_message(await self._reload_policy(self._read_rules))
            if self._log is not None:
                problem = await asyncio.to_thread(append_error, self._log)
                self._on_message(f"log {self._log}: {problem}" if problem else f"log reopened: {self._log}")
            if self._read_rules is None and self._log is None:
                self._on_message("nothing to reload: the proxy has neither a policy file nor a log")

    async def _reload_policy(self, read_rules: Callable[[], Rules]) -> str:
        gauges = self._guard.gauges
        try:
            rules = await asyncio.to_thread(read_rules)
        except UsageError as problem:
            gauges.reloads_failed += 1
            return f"policy not reloaded, the previous one stays in force: {problem}"
        if rules.empty_file is not None and not self._guard.rules.policy.observes:
            gauges.reloads_failed += 1
            return (
                f"policy not reloaded, the previous one stays in force: {rules.empty_file}: expected a policy, got an empty file"
                ' (to observe every check, write fail = "open")'
            )
        memory_limit = self._guard.rules.memory_limit
        self._guard.use_rules(rules)
        gauges.reloads_done += 1
        later = "; the new memory_limit applies after a restart" if rules.memory_limit != memory_limit else ""
        return f"policy reloaded: {rules.policy.summary()}{later}"
