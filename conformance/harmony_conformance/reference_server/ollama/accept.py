"""What becomes of a request's body: a prompt, and the answer that is about to be given."""

from collections.abc import Sequence
from dataclasses import replace

from harmony_conformance.json_value import JsonObject
from harmony_conformance.reference_server.model.generation import Generation, Sampling, script_of, unchanged
from harmony_conformance.reference_server.model.output_events import ClientCapabilities
from harmony_conformance.reference_server.model.plain_text import PlainTextReader, TextOptions, continuation, marked_up
from harmony_conformance.reference_server.ollama.answer import OllamaAnswer, in_message, in_response
from harmony_conformance.reference_server.ollama.generate import (
    context_of,
    going_on,
    messages_of,
    new_turn,
    prompt_text,
    refuse_beside_raw,
)
from harmony_conformance.reference_server.ollama.request import asked_of, read_delivery, read_messages
from harmony_conformance.reference_server.pipeline.http import Host
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, prompt_of, seed_of
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.conversation import conversation
from harmony_ref import encode, render_conversation_for_completion


def chat_answer(body: JsonObject, host: Host) -> OllamaAnswer | None:
    """The answer to a chat; None where there is no message, which only loads the model.

    Raises:
        ApiError: the request is refused.
    """
    delivery = read_delivery(body)
    asked = asked_of(body, read_messages(body.get("messages")))
    if not asked.messages:
        return None
    finished, opening = _prefilled(asked.messages)
    prompt = prompt_of(conversation(replace(asked, messages=finished), date=host.date), host.changes)
    run = _run(body, asked, (*prompt, *opening), opening, host)
    return OllamaAnswer(run=run, delivery=delivery, now=host.now, token_delay=asked.token_delay, place=in_message)


def generate_answer(body: JsonObject, host: Host) -> OllamaAnswer | None:
    """The answer to a prompt; None where there is none, which only loads the model.

    Raises:
        ApiError: the request is refused.
    """
    delivery = read_delivery(body)
    text = prompt_text(body)
    asked = asked_of(body, messages_of(body, text))
    if not text:
        return None
    told = OllamaAnswer(
        run=_run(body, asked, _generate_prompt(body, asked, text, host), (), host),
        delivery=delivery,
        now=host.now,
        token_delay=asked.token_delay,
        place=in_response,
        tells_context=True,
    )
    return _raw(told, asked) if body.get("raw") is True else told


def _generate_prompt(body: JsonObject, asked: ChatRequest, text: str, host: Host) -> tuple[int, ...]:
    context = context_of(body)
    if body.get("raw") is True:
        refuse_beside_raw(body)
        return host.changes.prompt(tuple(marked_up(text)))
    if not context:
        return prompt_of(conversation(asked, date=host.date), host.changes)
    messages = going_on(context, body, text)
    if messages is not None:
        return prompt_of(messages, host.changes)
    behind = render_conversation_for_completion(new_turn(body, text), auto_drop_analysis=False)
    return host.changes.prompt((*context, *behind))


def _prefilled(messages: Sequence[ChatMessage]) -> tuple[tuple[ChatMessage, ...], tuple[int, ...]]:
    """A last message of the assistant is the beginning of the answer: the messages before it, and what it opens."""
    *finished, last = messages
    if last.role != "assistant" or last.calls or not (last.text or last.reasoning):
        return tuple(messages), ()
    thought = f"<|channel|>analysis<|message|>{{}}{'<|end|><|start|>assistant' if last.text else ''}"
    opening = [
        *(_written(thought, last.reasoning) if last.reasoning else ()),
        *(_written("<|channel|>final<|message|>{}", last.text) if last.text else ()),
    ]
    return tuple(finished), tuple(opening)


def _written(frame: str, text: str) -> tuple[int, ...]:
    before, after = frame.split("{}")
    return (*marked_up(before), *encode(text), *marked_up(after))


def _run(
    body: JsonObject, asked: ChatRequest, prompt: tuple[int, ...], opening: tuple[int, ...], host: Host
) -> PromptRun:
    says_own_words = opening and asked.script is None
    offer = ClientCapabilities(names=frozenset(tool.name for tool in asked.tools), takes_calls=bool(asked.tools))
    return PromptRun(
        seed=seed_of(body),
        prompt=prompt,
        opening=opening,
        generation=Generation(
            continuation(prompt) if says_own_words else script_of(asked, unchanged),
            host.changes.sampling(Sampling(limit=asked.limit)),
        ),
        offer=host.changes.offer(offer),
        changes=host.changes,
    )


def _raw(told: OllamaAnswer, asked: ChatRequest) -> OllamaAnswer:
    """The same, neither rendered nor parsed: markers come back as the model wrote them."""
    script = asked.script if asked.script is not None else continuation(told.run.prompt)
    sampling = told.run.changes.sampling(Sampling(limit=asked.limit))
    run = replace(told.run, generation=Generation(script, sampling))
    spelling = TextOptions(shows_special=True, stops=told.delivery.stops)
    text = PlainTextReader(run.generation, spelling, sampling.stopping)
    return replace(told, run=run, raw=text, tells_context=False)
