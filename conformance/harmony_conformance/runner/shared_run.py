"""One run for all processes of a pytest session.

The process that owns the session opens the endpoint and looks at it. The first process that needs answers sends and records them, under a lock, and
every process judges what was recorded. The folder between them is private to the session, and no key ever stands in it: each process reads the key
from its own environment, and the client masks one that a server echoes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from harmony_conformance.engines.discovery import Capabilities
from harmony_conformance.engines.target import Target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.recording import exchange_line, read_exchange
from harmony_conformance.evidence.recording_file import append_whole, read_recorded
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.json_value import ENVELOPED, loads
from harmony_conformance.reference_server.server.serving import running
from harmony_conformance.runner.judge_run import in_order
from harmony_conformance.runner.run import Options, discover_target, send_scenarios
from harmony_conformance.transport.client import run_async

_DISCOVERY, _SENT, _LOCK = "discovery.jsonl", "sent", "lock"
EXCHANGES = "exchanges.jsonl"
"""What the file of a run's exchanges is called."""


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """What all processes know: the private folder, the file of exchanges, the endpoint (with an address, should it be the embedded one) and what it is."""

    folder: Path
    recording: Path
    target: Target
    found: Capabilities | None


def open_run(target: Target, options: Options, out: Path | None, stack: ExitStack) -> SharedRun:
    """Open an endpoint and look at it. `stack` ends what was begun here: the folder, and the embedded server.

    Raises:
        NothingThere: the endpoint can not be used.
        UsageError: the recording to judge again can not be read.
        OSError: `out` can not be written.
    """
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="harmony-conformance-")))
    if target.replay is not None:
        recording = Path(target.replay).absolute()
        if not read_recorded(recording):
            raise UsageError("it holds no exchange")
        return SharedRun(folder=folder, recording=recording, target=target, found=None)
    if target.base is None:
        target = replace(target, base=stack.enter_context(running(defects=target.defects)))
    kept = folder if out is None else out.absolute()
    kept.mkdir(parents=True, exist_ok=True)
    found = run_async(discover_target(target, options))
    (folder / _DISCOVERY).write_bytes(b"".join(exchange_line(x) for x in found.exchanges))
    offers = tuple(replace(offer, exchanges=()) for offer in found.api_support)
    lean = replace(found, exchanges=(), api_support=offers)
    return SharedRun(folder=folder, recording=kept / EXCHANGES, target=target, found=lean)


def recorded(run: SharedRun, options: Options, scenarios: Sequence[Scenario]) -> tuple[Series, ...]:
    """The series of these scenarios: sent and recorded by the first process that asks, read by all."""
    with FileLock(run.folder / _LOCK):
        if run.found is not None and not (run.folder / _SENT).exists():
            _record(run, run.found, options, scenarios)
            (run.folder / _SENT).touch()
    return in_order(read_recorded(run.recording), scenarios)


def _record(run: SharedRun, found: Capabilities, options: Options, scenarios: Sequence[Scenario]) -> None:
    with run.recording.open("wb", buffering=0) as file:
        append_whole(file, (run.folder / _DISCOVERY).read_bytes())

        def keep(x: Exchange) -> None:
            append_whole(file, exchange_line(x))

        lines = (run.folder / _DISCOVERY).read_bytes().splitlines()
        shown = tuple(read_exchange(loads(line, deepest=ENVELOPED)) for line in lines)
        run_async(send_scenarios(run.target, options, replace(found, exchanges=shown), scenarios, keep))
