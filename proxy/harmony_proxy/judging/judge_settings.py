"""Settings of the judge process, and constants of its protocol."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from harmony_conformance.json_value import at, dumps, loads, text

LENGTH_BYTES = 8
"""Size of the big-endian length before each frame."""

TOTALS = b"totals "
"""Prefix of output lines with the counts so far, as JSON. Each other line is a message: a JSON string."""

LOW, NORMAL = "low", "normal"
NONE = "none"
QUOTING = ("redacted", "full", NONE)
"""Values of `audit.redaction.Excerpts`, repeated here because that module imports all checks."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """Settings of the judge process. Without a log, failing exchanges are reported to the parent.

    `excerpts` (quotes in findings) and `capture` (samples) are one of `QUOTING`, `priority` is `low` or `normal`.
    """

    log: Path | None = None
    excerpts: str = NONE
    capture: str = NONE
    engine: str = "openai"
    priority: str = "low"

    def argument(self) -> str:
        """Return the settings as one command-line argument: JSON."""
        return dumps({**asdict(self), "log": str(self.log) if self.log is not None else None})


def read_settings(argument: str) -> JudgeSettings:
    """Parse the result of `JudgeSettings.argument`."""
    settings = loads(argument)
    log = text(at(settings, "log"))
    return JudgeSettings(
        log=Path(log) if log else None,
        excerpts=text(at(settings, "excerpts")),
        capture=text(at(settings, "capture")),
        engine=text(at(settings, "engine")),
        priority=text(at(settings, "priority")),
    )
