"""Recording of a live run: a new file, or one that continues an earlier recording."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from harmony_conformance.cli.run.run_folder import (
    PART,
    announce_replacement,
    describe_recording,
    remove_run,
    report_write_errors,
)
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.exchange_json import DISCOVERY, exchange_line
from harmony_conformance.evidence.recording_file import (
    Recording,
    append_atomically,
    end_line,
    read_recording,
    run_line,
    sent_line,
    series_key,
)
from harmony_conformance.json_value import JsonObject, value_at
from harmony_conformance.runner.resume import describe_difference, is_finished, reusable_series
from harmony_conformance.runner.shared_run import EXCHANGES
from harmony_conformance.runtime.private_files import private_opener


class RunRecording:
    """Recording of a run. State: the header, and the file once it has an exchange.

    The first exchange replaces the file of an earlier run. So an earlier run survives if the endpoint is down.
    """

    def __init__(self, out: Path, facts: JsonObject, earlier: Recording | None, *, has_scenarios: bool = True) -> None:
        """`facts`: version and options of the run. `earlier`: recording that this run continues.

        `has_scenarios`: False for `rates` and `load`.

        Raises:
            UsageError: The run has other options than the earlier one.
        """
        self.has_responses = False
        """True once a scenario had an answer, so that there is something to continue."""
        self.out, self._earlier, self._has_scenarios = out, earlier, has_scenarios
        begin = datetime.now(UTC).isoformat(timespec="seconds")
        started = value_at(earlier.header, "started") if earlier is not None else begin
        self._header: JsonObject = {**facts, "started": started}
        self._file: FileIO | None = None
        self._stack = ExitStack()
        self.reused = reusable_series(earlier) if earlier is not None else {}
        self._refuse_other(facts)

    def describe_endpoint(self, facts: JsonObject) -> None:
        """Add the facts of discovery to the header.

        Raises:
            UsageError: They differ from those of the earlier run.
        """
        self._refuse_other(facts)
        self._header = {**self._header, **facts}

    def add(self, x: Exchange) -> bytes:
        """Append an exchange and return its line.

        Raises:
            UsageError: The line cannot be written.
        """
        line = exchange_line(x)
        with self._report_write_errors():
            append_atomically(self._open(), line)
        self.has_responses |= x.scenario != DISCOVERY
        return line

    def finish(self, one: Series) -> None:
        """Append the line `sent` of a series. A series that the end of the run cut has none.

        Raises:
            UsageError: The line cannot be written.
        """
        key = series_key(one)
        if key is not None and key not in self.reused and is_finished(one):
            with self._report_write_errors():
                append_atomically(self._open(), sent_line(key))

    def end(self) -> None:
        """Append the line `end`.

        Raises:
            UsageError: The line cannot be written.
        """
        with self._report_write_errors():
            append_atomically(self._open(), end_line())

    def describe_stop(self) -> str:
        """Return what a stopped run recorded, and the command that judges it."""
        if self._file is None:
            return "stopped before anything was recorded"
        if not self.has_responses:
            return f"stopped before the first scenario response; discovery is in {self.out}"
        return f"stopped; {describe_recording(self.out, has_scenarios=self._has_scenarios)}"

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    def _report_write_errors(self) -> AbstractContextManager[None]:
        return report_write_errors(self.out, has_scenarios=self._has_scenarios)

    def _refuse_other(self, facts: JsonObject) -> None:
        if self._earlier is not None and (difference := describe_difference(self._earlier.header, facts)):
            raise UsageError(f"invalid --resume: {difference}")

    def _open(self) -> FileIO:
        """Return the file. It begins with the header and the series that are reused."""
        if self._file is None:
            part = self.out / PART
            file = self._stack.enter_context(open(part, "wb", buffering=0, opener=private_opener))  # noqa: SIM115 - closed by the stack
            try:
                append_atomically(file, run_line(self._header))
                for key, one in self.reused.items():
                    append_atomically(file, b"".join(map(exchange_line, one.exchanges.values())) + sent_line(key))
            except OSError:
                part.unlink()
                raise
            if self._earlier is None:
                announce_replacement(self.out)
            remove_run(self.out, keep=EXCHANGES)
            part.replace(self.out / EXCHANGES)
            self._file = file
        return self._file


def read_earlier(out: Path) -> Recording | None:
    """Return the recording that a run continues, None if the folder has none.

    Raises:
        UsageError: The recording is damaged or has no line `run`.
    """
    path = out / EXCHANGES
    if not path.exists() or not path.stat().st_size:
        return None
    recording = read_recording(path)
    if not recording.header:
        raise UsageError(f"invalid --resume: expected a recording with a line `run`, got {path} without one")
    return recording
