"""`audit --explain-format`: the detected format of each file, its first exchange, and the checks that can judge it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harmony_conformance.apis.text_fields import parse_text
from harmony_conformance.audit.batches import ReadOptions
from harmony_conformance.audit.readers.files.container import InputFile
from harmony_conformance.audit.readers.files.formats import CONTAINERS, open_logs
from harmony_conformance.audit.readers.records.record import CountedExchange, LoggedExchange
from harmony_conformance.audit.readers.records.shapes import find_shape, parse_record, read_line
from harmony_conformance.audit.redaction import LOCATION_WORDS, Excerpts, redact
from harmony_conformance.audit.scopes import checks_of
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import NotAnExchangeError
from harmony_conformance.evidence.file_lines import Line, UnreadableLine
from harmony_conformance.json_value import Json, dumps
from harmony_conformance.judge.judge import judge_split
from harmony_conformance.report.formats.terminal import visible
from harmony_conformance.runtime.plural import number_of

_RECORDS_READ = 1000
_SHOWN = 1500
_COUNTED = "a line of the proxy without a sample: it is counted by its outcomes"


def explain_format(paths: Iterable[str], reading: ReadOptions) -> tuple[list[str], Exit]:
    """Return the lines about the files, and 2 if a file has no exchange.

    Raises:
        UsageError: There is no file.
    """
    lines: list[str] = []
    has_problem = False
    for log in open_logs(paths, reading.form):
        container = CONTAINERS.get(log.format)
        lines.append(f"{log.name}: {f'{container.title} ({container.name})' if container else 'unreadable'}")
        found = list(_explain_file(log, reading))
        has_problem = has_problem or not any(is_exchange for _, is_exchange in found)
        lines += [f"  {line}" for line, _ in found]
    if not lines:
        raise UsageError("nothing to explain: expected a file, got none")
    return [visible(line) for line in lines], Exit.USAGE if has_problem else Exit.CONFORMS


def _explain_file(log: InputFile, reading: ReadOptions) -> Iterator[tuple[str, bool]]:
    """Yield lines about the first exchange, each with True if it is about one. Before it, the first unreadable record."""
    is_first = True
    for number, line in enumerate(log.records):
        place = f"{log.name}{log.mark}{line.offset}"
        records = (
            [line]
            if isinstance(line, UnreadableLine)
            else read_line(line, reading.form, name=place, columns=reading.columns)
        )
        for record in records:
            if isinstance(record, LoggedExchange) and isinstance(line, Line):
                yield from ((text, True) for text in _explain_record(record, line, reading))
                return
            if isinstance(record, UnreadableLine | CountedExchange) and is_first:
                is_first = False
                is_counted = isinstance(record, CountedExchange)
                yield f"{place}: {_COUNTED if is_counted else record}", is_counted
        if number >= _RECORDS_READ:
            yield f"no exchange in the first {_RECORDS_READ} records", False
            return


def _explain_record(record: LoggedExchange, line: Line, reading: ReadOptions) -> Iterator[str]:
    x = record.exchange
    shapes = {shape for value in parse_record(line, reading.columns) if (shape := _shape(value, reading.form))}
    rules = checks_of(record.scope)
    _, results = judge_split(x, rules)
    yield f"{x.id}: {', '.join(sorted(shapes))}"
    yield f"API: {x.api_adapter.title}; the log has {record.scope.value}"
    yield f"request: {_shown(x.request.body, reading.excerpts)}"
    yield f"response: {_response(x, reading.excerpts)}"
    checks = sorted(result.check for result in results)
    yield f"{number_of(len(checks), 'check')} for this exchange: {', '.join(checks) or 'none'}"


def _shape(value: object, form: str) -> str:
    try:
        shape = find_shape(value, form)  # type: ignore[arg-type]
    except NotAnExchangeError:
        return ""
    return f"{shape.title} ({shape.name})"


def _response(x: Exchange, excerpts: Excerpts) -> str:
    if x.response is None:
        return "none"
    kind = "a stream" if x.events is not None else "complete"
    return f"status {x.response.status}, {kind}: {_shown(x.response.body, excerpts)}"


def _shown(body: bytes, excerpts: Excerpts) -> str:
    if excerpts is Excerpts.NONE:
        return number_of(len(body), "byte")
    text = body.decode("utf-8", "replace")
    if excerpts is not Excerpts.FULL:
        value = parse_text(text)
        text = dumps(_redacted(value)) if isinstance(value, dict | list) else redact(text[:_SHOWN])
    return text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")


def _redacted(value: Json) -> Json:
    """Return a value with masked texts and numbers. Of the names, those of the APIs are shown."""
    match value:
        case dict():
            return {
                name if name in LOCATION_WORDS else redact(name): _redacted(member) for name, member in value.items()
            }
        case list():
            return [_redacted(one) for one in value]
        case str():
            return redact(value)
        case bool() | None:
            return value
        case _:
            return 0
