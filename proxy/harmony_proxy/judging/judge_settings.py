"""How the process that judges is told to judge, and how it is spoken to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.json_value import at, dumps, loads, text

LENGTH_BYTES = 8
"""Before each frame stands its length, so many bytes of it, the highest first."""

TOTALS = b"totals "
"""Before the counts of all that was judged so far, as JSON, in what the process tells. Other lines are words, each a JSON string."""

LOW, NORMAL = "low", "normal"
NONE = "none"
QUOTING = ("redacted", "full", NONE)
"""How much of the traffic a log may quote: the names of `audit.excerpt.Excerpts`, which would bring all checks along."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """How it judges. Without a log, exchanges that fail are told to the parent.

    `excerpts` (what findings quote) and `capture` (samples) are of `QUOTING`, `priority` is `low` or `normal`.
    """

    log: Path | None = None
    excerpts: str = NONE
    capture: str = NONE
    engine: str = "openai"
    priority: str = "low"

    def argument(self) -> str:
        """As an argument of the command line."""
        return dumps(
            {
                "log": str(self.log) if self.log is not None else None,
                "excerpts": self.excerpts,
                "capture": self.capture,
                "engine": self.engine,
                "priority": self.priority,
            }
        )


def read_settings(argument: str) -> JudgeSettings:
    """Back again."""
    told = loads(argument)
    log = text(at(told, "log"))
    return JudgeSettings(
        log=Path(log) if log else None,
        excerpts=text(at(told, "excerpts")),
        capture=text(at(told, "capture")),
        engine=text(at(told, "engine")),
        priority=text(at(told, "priority")),
    )
