"""Continuation of a recorded run: the facts that must be equal, and the series that need not be sent again."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.engines.target import Target
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.evidence.recording_file import Recording, SeriesKey, series_key
from harmony_conformance.json_value import JsonObject, dumps, loads, members, value_at
from harmony_conformance.runner.limits.access_loss import INCOMPLETE_RUN_KINDS
from harmony_conformance.runner.run import Options
from harmony_conformance.transport.messages import FailureKind
from harmony_conformance.transport.redaction import Mask

_CUT_KINDS = INCOMPLETE_RUN_KINDS | {FailureKind.RATE_LIMITED}
_KEY_VARIABLE = "api-key-env"  # older recordings lack it, and a key may be in another variable now
_LONGEST_VALUE = 60  # characters in a message


def recorded_options(target: Target, options: Options) -> JsonObject:
    """Return the options that determine the requests of a run, with masked secrets.

    The names of headers and of the variable with the key are included, values are not.
    """
    values: JsonObject = {
        "target": str(target),
        "model": options.model,
        "api": [*options.apis],
        "tries": options.tries,
        "select": [*options.select],
        "skip": [*options.skip],
        "script": options.script,
        "seed": options.seed,
        "header": [*sorted({name.lower() for name, _ in options.headers})],
        "extra-body": options.extra_body,
        **({_KEY_VARIABLE: options.key_env} if options.key_env is not None else {}),
    }
    return members(loads(Mask(options.secrets).mask_text(dumps(values))))


def describe_difference(recorded: JsonObject, current: JsonObject) -> str:
    """Return the first difference of two headers of recordings, by the members of `current`; empty if they are equal."""
    for name, value in _flat(current):
        if name[-1] != _KEY_VARIABLE and (before := value_at(recorded, *name)) != value:
            return f"expected {name[-1]} {_shown(before)} as in the recording, got {_shown(value)}"
    return ""


def _flat(header: JsonObject, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the paths and values of a header: of the members of its objects one by one."""
    for name, value in header.items():
        if not path and isinstance(value, dict):
            yield from _flat(value, (name,))
        else:
            yield (*path, name), value


def _shown(value: object) -> str:
    shown = "none" if value is None else value if isinstance(value, str) else dumps(value)  # type: ignore[arg-type]
    return shown if len(shown) <= _LONGEST_VALUE else f"{shown[:_LONGEST_VALUE]}…"


def is_finished(one: Series) -> bool:
    """Return True if all requests of a series were answered or failed by themselves, not because the run ended."""
    failures = (x.failure for x in one.exchanges.values())
    return all(failure is None or failure.kind not in _CUT_KINDS for failure in failures)


def reusable_series(recording: Recording) -> dict[SeriesKey, Series]:
    """Return the series of a recording that need not be sent again.

    If a limit ended the run, timeouts before it may have the same cause. Their series are sent again.
    """
    exchanges = [x for one in recording.series for x in one.exchanges.values()]
    was_stopped = any(x.failure is not None and x.failure.kind is FailureKind.RUN_STOPPED for x in exchanges)
    keys = {key: one for one in recording.series if (key := series_key(one)) is not None}
    return {
        key: one
        for key, one in keys.items()
        if key in recording.finished and is_finished(one) and not (was_stopped and _has_timeout(one))
    }


def _has_timeout(one: Series) -> bool:
    return any(x.failure is not None and x.failure.kind is FailureKind.TIMEOUT for x in one.exchanges.values())
