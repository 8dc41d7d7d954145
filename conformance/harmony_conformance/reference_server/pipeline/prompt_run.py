"""A prompt and the generation that answers it: what a request of any API comes to before its answer is worded."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from harmony_conformance.json_value import JsonObject, canonical
from harmony_conformance.reference_server.defects.stages import Changes
from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.model.output_events import ClientCapabilities, until_first_call
from harmony_conformance.reference_server.model.output_parser import Event, read
from harmony_conformance.reference_server.requests.errors import wrong_value
from harmony_ref import HarmonyError, Message, render_conversation_for_completion

_DELIVERY = frozenset({"stream", "stream_options", "return_token_ids", "harmony_token_delay", "harmony_event_tokens"})
"""What a request says of the way its answer is sent: the calls in the answer have the same ids whatever it is."""


@dataclass(frozen=True, kw_only=True)
class PromptRun:
    """One generation.

    Attributes:
        seed: what the ids of its calls are made of.
        opening: the end of the prompt that belongs to the answer, header included: the generation goes on in it.
        offer: what the client can take.
        calls_in_parallel: whether the answer may have several calls.
        changes: the defects that are switched on.
    """

    seed: str
    prompt: tuple[int, ...]
    opening: tuple[int, ...] = ()
    generation: Generation
    offer: ClientCapabilities
    calls_in_parallel: bool = True
    changes: Changes

    def again(self) -> "PromptRun":
        """The same once more, for another answer to the same request."""
        return replace(self, generation=self.generation.again())

    def events(self) -> Iterator[Event]:
        """What the model says, as it comes; to be read once."""
        events = read(self.generation, self.opening)
        return self.changes.events(events if self.calls_in_parallel else until_first_call(events, self.offer))


def seed_of(body: JsonObject) -> str:
    """Equal for requests that ask for the same answer."""
    asked = {name: value for name, value in body.items() if name not in _DELIVERY}
    return sha256(canonical(asked).encode("utf-8", "replace")).hexdigest()


def id_of(prefix: str, *parts: "str | int") -> str:
    """An id made of what it stands for, so that two runs are equal."""
    return prefix + sha256("/".join(map(str, parts)).encode()).hexdigest()[:32]


def prompt_of(messages: tuple[Message, ...], changes: Changes) -> tuple[int, ...]:
    """The token ids of a conversation, reasoning of finished turns left out.

    Raises:
        ApiError: Harmony cannot carry it.
    """
    try:
        ids = render_conversation_for_completion(changes.conversation(messages), auto_drop_analysis=False)
    except HarmonyError as problem:
        raise wrong_value("tools", f"Harmony cannot carry it: {problem}") from None
    return changes.prompt(tuple(ids))
