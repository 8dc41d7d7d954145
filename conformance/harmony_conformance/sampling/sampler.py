"""Sending of tasks: each try is a conversation, whose calls are answered until the model answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.chat_completion import Turn
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, dumps, items, loads, value_at
from harmony_conformance.sampling.graders import Grade, grade
from harmony_conformance.sampling.task import Task, TaskAnswer
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import FailureKind, Request

MOST_TURNS = 6
"""Largest number of requests in one try."""
MOST_CALLS = 128
"""Largest number of calls in one answer whose results go back. A request with the results of more would be far larger than the answer."""
DEFAULT_LIMIT = 4096
"""Output tokens of one answer. Too small a limit is the commonest reason of a low rate."""

SendOrStop = Callable[[Request], Awaitable[SendResult | None]]
"""Sends a request; None if no more may be sent."""


@dataclass(frozen=True, kw_only=True)
class TaskTry:
    """One try of a task: its grade, the answer and the exchanges. `answer` is None if there was none."""

    task: Task
    attempt: int
    grade: Grade
    exchanges: tuple[Exchange, ...]
    answer: TaskAnswer | None = None


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Sends tries to one endpoint. `members` are those of each request: model, temperature, effort, seed and others; the members of a task take precedence.

    Attributes:
        send: Sends a request within the limits of the run, None if no more may be sent.
        reasoning_field: The name under which reasoning goes back to the server in a tool loop.
        keep: Callback for each exchange.
    """

    send: SendOrStop
    members: JsonObject
    reasoning_field: str
    engine: str
    keep: Callable[[Exchange], None]

    async def try_all(self, tasks: Sequence[Task], attempt: int) -> tuple[TaskTry, ...]:
        """Send one try of each task; the caller's limits decide how many at a time."""
        tried = await asyncio.gather(*(self.try_task(task, attempt) for task in tasks))
        return tuple(sample for sample in tried if sample is not None)

    async def try_task(self, task: Task, attempt: int) -> TaskTry | None:
        """Send one try of a task. None if a limit of the run ended it."""
        messages: list[Json] = [*items(value_at(task.request, "messages"))]
        calls: list[tuple[str, Json]] = []
        exchanges: list[Exchange] = []
        for turn_number in range(MOST_TURNS):
            x = await self._send(task, attempt, turn_number, messages)
            if x is None:  # a limit of the run: a try that it cut says nothing about the server
                return None
            exchanges.append(x)
            turn = x.turn
            if turn is None or x.failure is not None or not (turn.has_answer or turn.is_truncated or turn.reasoning):
                break
            made = [(call.name, _arguments(call.arguments)) for call in turn.tool_calls[: MOST_CALLS + 1]]
            if len(made) > MOST_CALLS:
                return TaskTry(task=task, attempt=attempt, grade=Grade.UNSOLVED, exchanges=_kept(exchanges))
            calls += made
            if not made or any(name not in task.results for name, _ in made):
                answer = TaskAnswer(content=turn.content or "", calls=tuple(calls))
                return TaskTry(
                    task=task, attempt=attempt, grade=grade(task, answer), exchanges=_kept(exchanges), answer=answer
                )
            messages += self._loop(turn, task)
        return TaskTry(task=task, attempt=attempt, grade=Grade.ERROR, exchanges=_kept(exchanges))

    def _loop(self, turn: Turn, task: Task) -> list[Json]:
        """Return the model's message with its reasoning, and the results of its calls."""
        called: list[Json] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.tool_calls
        ]
        message: JsonObject = {"role": "assistant", "content": turn.content, "tool_calls": called}
        if turn.reasoning:
            message[self.reasoning_field] = turn.reasoning
        results: list[Json] = [
            {"role": "tool", "tool_call_id": call.id, "content": task.results[call.name]} for call in turn.tool_calls
        ]
        return [message, *results]

    async def _send(self, task: Task, attempt: int, turn_number: int, messages: list[Json]) -> Exchange | None:
        limit: JsonObject = {} if "max_completion_tokens" in task.request else {"max_tokens": DEFAULT_LIMIT}
        body: JsonObject = {**limit, **self.members, **task.request, "messages": messages}
        if isinstance(seed := body.get("seed"), int):
            body["seed"] = seed + attempt  # a seed for each try, or all tries were one
        request = Request(path=CHAT_PATH, body=dumps(body).encode("utf-8", "backslashreplace"))
        unsent = Exchange(
            id=f"{task.id}/chat/turn {turn_number + 1}/{attempt}",
            request=request,
            scenario=task.id,
            step=f"turn {turn_number + 1}",
            attempt=attempt,
            engine=self.engine,
            validity=Validity.VALID,
        )
        sent = await self.send(request)
        if sent is None or (sent.failure is not None and sent.failure.kind is FailureKind.RUN_STOPPED):
            return None
        x = replace(unsent, response=sent.response, failure=sent.failure, retry_waits=sent.retry_waits)
        self.keep(x)
        return x


def without_views(x: Exchange) -> Exchange:
    """Return an exchange without its derived values, which can need many times the memory of its bytes."""
    response = None if x.response is None else replace(x.response)
    return replace(x, request=replace(x.request), response=response)


def _kept(exchanges: Sequence[Exchange]) -> tuple[Exchange, ...]:
    return tuple(map(without_views, exchanges))


def _arguments(arguments: str) -> Json:
    try:
        return loads(arguments)
    except InvalidJsonError:
        return arguments
