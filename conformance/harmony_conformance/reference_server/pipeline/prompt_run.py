"""A prompt and its generation: the common form of a request before its API formats the answer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from harmony_conformance.json_value import JsonObject, canonical_json
from harmony_conformance.reference_server.defects.stages import Changes
from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.model.output_deltas import ClientCapabilities, until_first_call
from harmony_conformance.reference_server.model.output_parser import OutputEvent, parse_output
from harmony_conformance.reference_server.requests.errors import wrong_value
from harmony_ref import HarmonyError, Message, render_conversation_for_completion

_DELIVERY = frozenset({"stream", "stream_options", "return_token_ids", "harmony_token_delay", "harmony_event_tokens"})
"""Request members that only control delivery; they do not change the ids of calls."""


@dataclass(frozen=True, kw_only=True)
class PromptRun:
    """One generation; `answer_prefix` is the end of the prompt that the answer continues, including the header."""

    id_seed: str  # source of the ids of its calls
    prompt: tuple[int, ...]
    answer_prefix: tuple[int, ...] = ()
    generation: Generation
    client_capabilities: ClientCapabilities
    calls_in_parallel: bool = True
    changes: Changes

    def fresh_copy(self) -> "PromptRun":
        """Return a copy with a new generation, for another answer to the same request."""
        return replace(self, generation=self.generation.fresh_copy())

    def events(self) -> Iterator[OutputEvent]:
        """Return the events of the output; the iterator can be used once."""
        events = parse_output(self.generation, self.answer_prefix)
        return self.changes.events(
            events if self.calls_in_parallel else until_first_call(events, self.client_capabilities)
        )


def request_hash(body: JsonObject) -> str:
    """Return a hash that is equal for requests that differ only in delivery."""
    content = {name: value for name, value in body.items() if name not in _DELIVERY}
    return sha256(canonical_json(content).encode("utf-8", "replace")).hexdigest()


def derive_id(prefix: str, *parts: "str | int") -> str:
    """Return an id derived from `parts`, so that two runs give equal ids."""
    return prefix + sha256("/".join(map(str, parts)).encode()).hexdigest()[:32]


def render_prompt(messages: tuple[Message, ...], changes: Changes) -> tuple[int, ...]:
    """Return the prompt without the reasoning of finished turns; raise an ApiError if Harmony cannot represent it."""
    try:
        ids = render_conversation_for_completion(changes.conversation(messages), auto_drop_analysis=False)
    except HarmonyError as problem:
        raise wrong_value("tools", f"Harmony cannot represent it: {problem}") from None
    return changes.prompt(tuple(ids))
