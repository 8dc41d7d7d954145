"""One run for all processes of a pytest session.

The process that owns the session opens the endpoint and discovers it. The first process that needs exchanges sends and records them, under a lock,
and every process judges the recording. The shared folder is private to the session and never contains a key. Each process reads the key from its own
environment, and the client masks a key that a server echoes.
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
from harmony_conformance.evidence.exchange_json import exchange_line, read_exchange
from harmony_conformance.evidence.folder_lock import lock_folder
from harmony_conformance.evidence.recording_file import append_atomically, read_recorded
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.json_value import MAX_LINE_DEPTH, loads
from harmony_conformance.reference_server.server.serving import running
from harmony_conformance.runner.judge_run import sort_series
from harmony_conformance.runner.run import Options, discover_target, mask_requests, send_latency_probe, send_scenarios
from harmony_conformance.runtime.private_files import create_private_folder, private_opener, write_private
from harmony_conformance.transport.client import run_async

_DISCOVERY, _SENT, _LOCK = "discovery.jsonl", "sent", "lock"
EXCHANGES = "exchanges.jsonl"
"""File name of a run's exchanges."""


def recording_in(folder: Path) -> Path:
    """Return the recording in the folder of a run, which may be compressed. A path that does not exist if the folder has no recording."""
    return next(filter(Path.is_file, (folder / EXCHANGES, folder / f"{EXCHANGES}.gz")), folder / EXCHANGES)


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """Data that all processes share: the private folder, the file of the exchanges, the endpoint (with the URL of an embedded server)."""

    folder: Path
    recording: Path
    target: Target
    capabilities: Capabilities | None


def open_run(target: Target, options: Options, out: Path | None, stack: ExitStack) -> SharedRun:
    """Open an endpoint and discover it. `stack` removes the folder and stops the embedded server.

    Raises:
        EndpointUnusableError: The endpoint cannot be tested.
        UsageError: The recording cannot be read or is incomplete, or another process writes into `out`.
        OSError: `out` cannot be written.
    """
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="harmony-conformance-")))
    if target.replay is not None:
        recording = Path(target.replay).absolute()
        if not read_recorded(recording):
            raise UsageError("invalid recording: expected exchanges, got none")
        return SharedRun(folder=folder, recording=recording, target=target, capabilities=None)
    if target.base_url is None:
        target = replace(target, base_url=stack.enter_context(running(defects=target.defects)))
    out_folder = folder if out is None else out.absolute()
    create_private_folder(out_folder)
    stack.enter_context(lock_folder(out_folder))
    found = run_async(discover_target(target, options))
    probes: list[bytes] = []
    record = mask_requests(options, lambda x: probes.append(exchange_line(x)))
    for x in found.exchanges:
        record(x)
    write_private(folder / _DISCOVERY, b"".join(probes))
    apis = tuple(replace(one, exchanges=()) for one in found.api_support)
    lean = replace(found, exchanges=(), api_support=apis)
    return SharedRun(folder=folder, recording=out_folder / EXCHANGES, target=target, capabilities=lean)


def recorded_series(run: SharedRun, options: Options, scenarios: Sequence[Scenario]) -> tuple[Series, ...]:
    """Return the recorded series of these scenarios; the first process that calls it sends and records them."""
    with FileLock(run.folder / _LOCK):
        if run.capabilities is not None and not (run.folder / _SENT).exists():
            _record(run, run.capabilities, options, scenarios)
            (run.folder / _SENT).touch()
    return sort_series(read_recorded(run.recording), scenarios)


def recorded_latency(run: SharedRun, options: Options) -> tuple[Exchange, ...]:
    """Send and record the latency probe, after every scenario; return its exchanges."""
    recorded_series(run, options, ())
    assert run.capabilities is not None, "an endpoint: a recording is refused before"
    with open(run.recording, "ab", buffering=0, opener=private_opener) as file:

        def record(x: Exchange) -> None:
            append_atomically(file, exchange_line(x))

        return run_async(send_latency_probe(run.target, options, run.capabilities, record))


def _record(run: SharedRun, found: Capabilities, options: Options, scenarios: Sequence[Scenario]) -> None:
    discovery = (run.folder / _DISCOVERY).read_bytes()
    probes = tuple(read_exchange(loads(line, max_depth=MAX_LINE_DEPTH)) for line in discovery.splitlines())
    with open(run.recording, "wb", buffering=0, opener=private_opener) as file:
        append_atomically(file, discovery)

        def record(x: Exchange) -> None:
            append_atomically(file, exchange_line(x))

        run_async(send_scenarios(run.target, options, replace(found, exchanges=probes), scenarios, record))
