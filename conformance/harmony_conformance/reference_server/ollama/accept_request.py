"""Build the prompt and the answer for a request to Ollama's API."""

from dataclasses import replace

from harmony_conformance.json_value import JsonObject
from harmony_conformance.reference_server.model.generation import Generation, Sampling, keep_output, output_tokens
from harmony_conformance.reference_server.model.output_deltas import ClientCapabilities
from harmony_conformance.reference_server.model.plain_text import (
    PlainTextReader,
    TextOptions,
    encode_raw_prompt,
    unscripted_continuation,
)
from harmony_conformance.reference_server.ollama.answer import OllamaAnswer, in_message, in_response
from harmony_conformance.reference_server.ollama.generate import (
    build_messages,
    continued_messages,
    new_turn,
    prompt_text,
    read_context,
    refuse_beside_raw,
)
from harmony_conformance.reference_server.ollama.request import read_chat_request, read_delivery, read_messages
from harmony_conformance.reference_server.pipeline.http import ServerState
from harmony_conformance.reference_server.pipeline.prefill import split_prefill
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, render_prompt, request_hash
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.conversation import conversation
from harmony_ref import render_conversation_for_completion


def chat_answer(body: JsonObject, host: ServerState) -> OllamaAnswer | None:
    """Return the answer to a chat, or None without messages; raise an ApiError if the request is invalid."""
    delivery = read_delivery(body)
    request = read_chat_request(body, read_messages(body.get("messages")))
    if not request.messages:
        return None
    finished, opening = split_prefill(request.messages)
    prompt = render_prompt(conversation(replace(request, messages=finished), date=host.date), host.changes)
    run = _run(body, request, (*prompt, *opening), opening, host)
    return OllamaAnswer(
        run=run, delivery=delivery, now=host.now, token_delay=request.token_delay, place_output=in_message
    )


def generate_answer(body: JsonObject, host: ServerState) -> OllamaAnswer | None:
    """Return the answer to a prompt, or None without a prompt; raise an ApiError if the request is invalid."""
    delivery = read_delivery(body)
    text = prompt_text(body)
    request = read_chat_request(body, build_messages(body, text))
    if not text:
        return None
    answer = OllamaAnswer(
        run=_run(body, request, _generate_prompt(body, request, text, host), (), host),
        delivery=delivery,
        now=host.now,
        token_delay=request.token_delay,
        place_output=in_response,
        shows_context=True,
    )
    return _raw(answer, request) if body.get("raw") is True else answer


def _generate_prompt(body: JsonObject, request: ChatRequest, text: str, host: ServerState) -> tuple[int, ...]:
    context = read_context(body)
    if body.get("raw") is True:
        refuse_beside_raw(body)
        return host.changes.prompt(tuple(encode_raw_prompt(text)))
    if not context:
        return render_prompt(conversation(request, date=host.date), host.changes)
    messages = continued_messages(context, body, text)
    if messages is not None:
        return render_prompt(messages, host.changes)
    turn = render_conversation_for_completion(new_turn(body, text), auto_drop_analysis=False)
    return host.changes.prompt((*context, *turn))


def _run(
    body: JsonObject, request: ChatRequest, prompt: tuple[int, ...], opening: tuple[int, ...], host: ServerState
) -> PromptRun:
    is_unscripted = opening and request.script is None
    offer = ClientCapabilities(
        declared_functions=frozenset(tool.name for tool in request.tools), accepts_calls=bool(request.tools)
    )
    return PromptRun(
        id_seed=request_hash(body),
        prompt=prompt,
        answer_prefix=opening,
        generation=Generation(
            unscripted_continuation(prompt) if is_unscripted else output_tokens(request, keep_output),
            host.changes.sampling(Sampling(limit=request.limit)),
        ),
        client_capabilities=host.changes.client_capabilities(offer),
        changes=host.changes,
    )


def _raw(answer: OllamaAnswer, request: ChatRequest) -> OllamaAnswer:
    """Return the raw answer, neither rendered nor parsed: markers are part of the text."""
    script = request.script if request.script is not None else unscripted_continuation(answer.run.prompt)
    sampling = answer.run.changes.sampling(Sampling(limit=request.limit))
    generation = Generation(script, sampling)
    spelling = TextOptions(shows_special=True, stop_strings=answer.delivery.stop_strings)
    text = PlainTextReader(generation, spelling, sampling.stop_tokens)
    return replace(answer, run=replace(answer.run, generation=generation), raw=text, shows_context=False)
