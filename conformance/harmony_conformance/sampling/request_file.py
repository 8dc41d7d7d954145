"""Requests of a user as tasks without a grade: a JSON Lines file of Chat Completions requests, as Kimi's vendor verifier reads it."""

from __future__ import annotations

from pathlib import Path

from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.file_lines import UnreadableLine, read_lines
from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, items, loads, members, value_at
from harmony_conformance.sampling.task import Task

REQUESTS = "requests"
"""Name of the set of tasks that such a file makes."""
_SET_BY_RUN = frozenset({"model", "stream", "stream_options"})


def read_requests(path: Path) -> tuple[Task, ...]:
    """Return one task for each line. The model and streaming are left to the run.

    Raises:
        UsageError: The file cannot be read, has no request, or has a line without a request.
    """
    tasks: list[Task] = []
    for line in read_lines(path):
        if isinstance(line, UnreadableLine):
            place = f", line {line.number}" if line.number else ""
            raise UsageError(f"invalid --requests: {path}{place}: {line.kind} {line.detail}".rstrip())
        tasks.append(_task(path, line.number, line.data))
    if not tasks:
        raise UsageError(f"invalid --requests: {path}: expected Chat Completions requests, one per line, got none")
    return tuple(tasks)


def _task(path: Path, number: int, line: bytes) -> Task:
    where = f"invalid --requests: {path}, line {number}"
    try:
        value = loads(line)
    except InvalidJsonError as problem:
        raise UsageError(f"{where}: {problem}") from None
    messages = items(value_at(value, "messages"))
    if not messages:
        raise UsageError(f"{where}: expected a Chat Completions request with `messages`, got none")
    request: JsonObject = {name: member for name, member in members(value).items() if name not in _SET_BY_RUN}
    if other := [message for message in messages if not isinstance(message, dict)]:
        raise UsageError(f"{where}: expected a message to be an object, got {type(other[0]).__name__}")
    request["messages"] = [_message(message) for message in messages]
    return Task(id=f"line {number}", set=REQUESTS, kind=REQUESTS, request=request, grade={})


def _message(message: Json) -> Json:
    """Return the message, with Kimi's role `_input` as `system`."""
    return {**members(message), "role": "system"} if value_at(message, "role") == "_input" else message
