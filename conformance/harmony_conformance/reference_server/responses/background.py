"""Responses in the background: they are generated without a client, can be polled, streamed from any event, and cancelled."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from harmony_conformance.json_value import Json, JsonObject, members
from harmony_conformance.reference_server.defects.stages import ApiFamily, Changes
from harmony_conformance.reference_server.pipeline.load import Load
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.responses.answer import ResponsesAnswer


class BackgroundRun:
    """One response in the background, with all its events so far.

    Attributes:
        response: The response in its current state.
    """

    def __init__(self, answer: ResponsesAnswer, changes: Changes, load: Load) -> None:
        self._answer = answer
        self._changes = changes
        self._load = load
        self._events: list[Json] = []
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._cancelled = asyncio.Event()
        self._is_over = False
        self.response: JsonObject = answer.queued()

    def start(self, on_end: Callable[[JsonObject], None]) -> None:
        """Begin to generate; `on_end` gets the last response."""
        self._task = asyncio.get_running_loop().create_task(self._generate(on_end))

    async def cancel(self) -> None:
        """End the generation, unless it is over; the items that are complete remain.

        It ends at its first wait for a token at the earliest, so that the usage does not depend on the speed of the client.
        """
        if self._task is not None and not self._is_over:
            await self._begun.wait()
            self._cancelled.set()
            await self._task

    async def events(self, after: int) -> AsyncIterator[Json]:
        """Yield the events whose number is greater than `after`, as they come."""
        sent = after + 1
        while True:
            for event in self._events[sent:]:
                sent += 1
                yield event
            if self._is_over:
                return
            await self._news.wait()

    async def _generate(self, on_end: Callable[[JsonObject], None]) -> None:
        try:
            with self._load.working():
                await self._add_events()
            if self._cancelled.is_set():
                cancelled: JsonObject = {"type": "response.cancelled", "sequence_number": len(self._events)}
                self._add({**cancelled, "response": self._answer.cancelled()})
            on_end(self.response)
        finally:
            self._is_over = True
            self._begun.set()
            self._wake()

    async def _add_events(self) -> None:
        delay, emitted = self._answer.request.token_delay, 0
        for event in self._changes.stream(self._answer.stream(), ApiFamily.RESPONSES):
            seconds, emitted = (self._answer.token_count - emitted) * delay, self._answer.token_count
            if seconds > 0:
                self._begun.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._cancelled.wait(), seconds)
            if self._cancelled.is_set():
                return
            self._add(event)

    def _add(self, event: Json) -> None:
        self._events.append(event)
        self.response = members(members(event).get("response")) or self.response
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def refuse_synchronous(run: "BackgroundRun | None", what: str) -> BackgroundRun:
    """Return the run; raise an ApiError for a response that was not made in the background."""
    if run is None:
        raise ApiError(f"Cannot {what} a response that was not created with 'background'.", code="not_background")
    return run
