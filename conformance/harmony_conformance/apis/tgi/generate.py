"""TGI's /generate and /generate_stream: raw continuation of a prompt, with every token in `details`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from harmony_conformance.apis.adapter_helpers import omit_members, token_counts, translate_error
from harmony_conformance.apis.api import Api, UnsupportedByApiError
from harmony_conformance.apis.harmony_prompt import generation_settings, prompt_text
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at

_FINISH_REASONS: dict[str, str] = {"length": "length", "eos_token": "stop", "stop_sequence": "stop"}
_PARAMETERS: Mapping[str, str] = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    **{name: name for name in ("top_p", "seed", "stop", "frequency_penalty")},
}
"""Members of a chat request that become `parameters`."""


def _write_request(request: JsonObject) -> JsonObject:
    """Write a request. A temperature of 0 is omitted: TGI rejects it, and decodes greedily without one."""
    if request.get("stream") is True:
        raise UnsupportedByApiError("`stream` on this path")
    sent = ((here, request.get(name)) for name, here in _PARAMETERS.items())
    parameters: JsonObject = {here: value for here, value in sent if value is not None}
    if request.get("temperature"):
        parameters["temperature"] = request["temperature"]
    if isinstance(parameters.get("stop"), str):
        parameters["stop"] = [parameters["stop"]]
    parameters["details"] = True
    if request.get("return_token_ids") is True:
        parameters["decoder_input_details"] = True
    moved = {*_PARAMETERS, "temperature", "stream", "stream_options", "return_token_ids"}
    settings = generation_settings(omit_members(request, moved))
    return {**settings, "inputs": prompt_text(request), "parameters": parameters}


def _read_request(request: Json) -> Json:
    """Return only the settings: a prompt has no messages."""
    if not isinstance(request, dict):
        return request
    parameters = members(request.get("parameters"))
    limit = parameters.get("max_new_tokens")
    return {
        **omit_members(request, {"inputs", "parameters"}),
        **{name: parameters[name] for name in ("temperature", "top_p", "seed", "stop") if name in parameters},
        **({"max_tokens": limit} if limit is not None else {}),
    }


def _read_response(body: Json) -> Json:
    """Translate a response of `/generate`, or of `/`, which is a list of one. With `best_of`, the details of the best list the others."""
    answer = value_at(body, 0) if isinstance(body, list) else body
    if not isinstance(value_at(answer, "generated_text"), str):
        return translate_error(body)
    details = members(value_at(answer, "details"))
    prompt, others = _ids(details.get("prefill")), items(details.get("best_of_sequences"))
    sequences: list[Json] = [{**details, "generated_text": value_at(answer, "generated_text")}, *others]
    counts = [integer(value_at(one, "generated_tokens")) for one in sequences]
    total = None if None in counts else sum(one or 0 for one in counts)
    return {
        "object": "chat.completion",
        "choices": [_choice(index, one) for index, one in enumerate(sequences)],
        **({"prompt_token_ids": prompt} if prompt else {}),
        **({"usage": token_counts(len(prompt) or None, total)} if total is not None else {}),
    }


def _choice(index: int, sequence: Json) -> Json:
    ids = _ids(value_at(sequence, "tokens"))
    return {
        "index": index,
        "message": {"role": "assistant", "content": value_at(sequence, "generated_text")},
        "finish_reason": _finish_reason(sequence),
        **({"token_ids": ids} if ids else {}),
    }


def _read_events(values: Iterable[Json]) -> Iterator[Json]:
    for value in values:
        token = value_at(value, "token")
        if members(value).get("error") is not None or not isinstance(value, dict):
            yield translate_error(value)
        elif not isinstance(token, dict):
            yield {"object": "chat.completion.chunk", "choices": []}
        else:
            yield _chunk(value, token)


def _chunk(event: JsonObject, token: JsonObject) -> JsonObject:
    details = event.get("details")
    count = integer(value_at(details, "generated_tokens"))
    choice: JsonObject = {
        "index": 0,
        "delta": {"content": "" if token.get("special") is True else text(token.get("text"))},
        "finish_reason": _finish_reason(details),
        "token_ids": _ids([token]),
    }
    counts = token_counts(integer(value_at(details, "input_length")), count)
    usage: JsonObject = {"usage": counts} if count is not None else {}
    return {"object": "chat.completion.chunk", "choices": [choice], **usage}


def _ids(tokens: Json) -> list[Json]:
    return [integer(value_at(token, "id")) for token in items(tokens)]


def _finish_reason(details: Json) -> Json:
    reason = value_at(details, "finish_reason")
    return _FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None


TGI_GENERATE = Api(
    name="tgi-generate",
    title="TGI's generate",
    path="/generate",
    write_request=_write_request,
    read_request=_read_request,
    read_response=_read_response,
    read_events=_read_events,
    answer_member="generated_text: …",
    is_raw=True,
    option="tgi",
)
