"""Settings of the judge process, and constants of its protocol."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from harmony_conformance.json_value import dumps, loads, members, text

LENGTH_BYTES = 8
"""Size of the big-endian length before each frame."""

TOTALS = b"totals "
"""Prefix of output lines with the counts so far, as JSON. Each line without a prefix is a message: a JSON string."""

RECENT = b"recent "
"""Prefix of output lines with the outcomes since the last such line (`recent.RecentOutcomes`)."""

LOW, NORMAL = "low", "normal"
NONE = "none"
EXCERPT_MODES = ("redacted", "full", NONE)
"""Values of `audit.redaction.Excerpts`, repeated here because that module imports all checks."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """Settings of the judge process. Without a log, failing exchanges are reported to the parent."""

    log: Path | None = None
    excerpts: str = NONE  # of `EXCERPT_MODES`, for findings
    capture: str = NONE  # of `EXCERPT_MODES`, for samples, and before and after of repairs
    engine: str = "openai"
    priority: str = LOW
    otel: str = ""  # URL of an OTLP/HTTP receiver, to which spans and metrics are sent; empty: none
    otel_content: str = NONE  # of `EXCERPT_MODES`, for the messages in spans

    def argument(self) -> str:
        """Return the settings as one command-line argument: JSON."""
        return dumps({**asdict(self), "log": str(self.log) if self.log is not None else None})


def read_settings(argument: str) -> JudgeSettings:
    """Parse the result of `JudgeSettings.argument`."""
    values = {name: text(value) for name, value in members(loads(argument)).items()}
    log = values.pop("log")
    return JudgeSettings(log=Path(log) if log else None, **values)
