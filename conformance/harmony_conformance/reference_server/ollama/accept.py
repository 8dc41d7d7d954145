"""Build the prompt and the answer for a request to Ollama's API."""

from collections.abc import Sequence
from dataclasses import replace

from harmony_conformance.json_value import JsonObject
from harmony_conformance.reference_server.model.generation import Generation, Sampling, script_of, unchanged
from harmony_conformance.reference_server.model.output_events import ClientCapabilities
from harmony_conformance.reference_server.model.plain_text import PlainTextReader, TextOptions, continuation, marked_up
from harmony_conformance.reference_server.ollama.answer import OllamaAnswer, in_message, in_response
from harmony_conformance.reference_server.ollama.generate import (
    context_of,
    continued_messages,
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
    """Return the answer to a chat, or None without messages; raise an ApiError if the request is invalid."""
    delivery = read_delivery(body)
    request = asked_of(body, read_messages(body.get("messages")))
    if not request.messages:
        return None
    finished, opening = _split_prefill(request.messages)
    prompt = prompt_of(conversation(replace(request, messages=finished), date=host.date), host.changes)
    run = _run(body, request, (*prompt, *opening), opening, host)
    return OllamaAnswer(run=run, delivery=delivery, now=host.now, token_delay=request.token_delay, place=in_message)


def generate_answer(body: JsonObject, host: Host) -> OllamaAnswer | None:
    """Return the answer to a prompt, or None without a prompt; raise an ApiError if the request is invalid."""
    delivery = read_delivery(body)
    text = prompt_text(body)
    request = asked_of(body, messages_of(body, text))
    if not text:
        return None
    answer = OllamaAnswer(
        run=_run(body, request, _generate_prompt(body, request, text, host), (), host),
        delivery=delivery,
        now=host.now,
        token_delay=request.token_delay,
        place=in_response,
        tells_context=True,
    )
    return _raw(answer, request) if body.get("raw") is True else answer


def _generate_prompt(body: JsonObject, request: ChatRequest, text: str, host: Host) -> tuple[int, ...]:
    context = context_of(body)
    if body.get("raw") is True:
        refuse_beside_raw(body)
        return host.changes.prompt(tuple(marked_up(text)))
    if not context:
        return prompt_of(conversation(request, date=host.date), host.changes)
    messages = continued_messages(context, body, text)
    if messages is not None:
        return prompt_of(messages, host.changes)
    turn = render_conversation_for_completion(new_turn(body, text), auto_drop_analysis=False)
    return host.changes.prompt((*context, *turn))


def _split_prefill(messages: Sequence[ChatMessage]) -> tuple[tuple[ChatMessage, ...], tuple[int, ...]]:
    """Return the messages without a last assistant message, and the tokens of that message, which begin the answer."""
    *finished, last = messages
    if last.role != "assistant" or last.calls or not (last.text or last.reasoning):
        return tuple(messages), ()
    thought = f"<|channel|>analysis<|message|>{{}}{'<|end|><|start|>assistant' if last.text else ''}"
    opening = [
        *(_encode_in(thought, last.reasoning) if last.reasoning else ()),
        *(_encode_in("<|channel|>final<|message|>{}", last.text) if last.text else ()),
    ]
    return tuple(finished), tuple(opening)


def _encode_in(frame: str, text: str) -> tuple[int, ...]:
    before, after = frame.split("{}")
    return (*marked_up(before), *encode(text), *marked_up(after))


def _run(
    body: JsonObject, request: ChatRequest, prompt: tuple[int, ...], opening: tuple[int, ...], host: Host
) -> PromptRun:
    is_unscripted = opening and request.script is None
    offer = ClientCapabilities(names=frozenset(tool.name for tool in request.tools), takes_calls=bool(request.tools))
    return PromptRun(
        seed=seed_of(body),
        prompt=prompt,
        opening=opening,
        generation=Generation(
            continuation(prompt) if is_unscripted else script_of(request, unchanged),
            host.changes.sampling(Sampling(limit=request.limit)),
        ),
        offer=host.changes.offer(offer),
        changes=host.changes,
    )


def _raw(answer: OllamaAnswer, request: ChatRequest) -> OllamaAnswer:
    """Return the raw answer, neither rendered nor parsed: markers are part of the text."""
    script = request.script if request.script is not None else continuation(answer.run.prompt)
    sampling = answer.run.changes.sampling(Sampling(limit=request.limit))
    generation = Generation(script, sampling)
    spelling = TextOptions(shows_special=True, stops=answer.delivery.stops)
    text = PlainTextReader(generation, spelling, sampling.stopping)
    return replace(answer, run=replace(answer.run, generation=generation), raw=text, tells_context=False)
