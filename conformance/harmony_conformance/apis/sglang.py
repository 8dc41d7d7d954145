"""SGLang's /generate: raw continuation of a prompt (SGLang 0.5.23, entrypoints/http_server.py, managers/io_struct.py).

An event of a stream has all output so far, or only the new output with `--incremental-streaming-output`. The token count shows which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from harmony_conformance.apis import adapter_helpers
from harmony_conformance.apis.api import Api
from harmony_conformance.apis.chat_completion import ABORTED
from harmony_conformance.apis.harmony_prompt import generation_settings, prompt_ids
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at

_SAMPLING: Mapping[str, str] = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "seed": "sampling_seed",
    **{name: name for name in ("temperature", "top_p", "stop", "n", "frequency_penalty", "presence_penalty")},
    **{name: name for name in ("ignore_eos", "skip_special_tokens")},
}
"""Members of a chat request that become sampling parameters. The server rejects unknown ones."""
_FROM_SAMPLING = {"max_new_tokens": "max_tokens", "sampling_seed": "seed"}
_UNSUPPORTED = adapter_helpers.neutral_values("logprobs", "top_logprobs")
"""Members that the API defines otherwise, with the values without effect."""
_PROMPT = frozenset({"text", "input_ids", "sampling_params", "return_prompt_token_ids"})


def _write_request(request: JsonObject) -> JsonObject:
    adapter_helpers.reject_unsupported(request, _UNSUPPORTED)
    sampling: JsonObject = {here: request[name] for name, here in _SAMPLING.items() if request.get(name) is not None}
    shown: JsonObject = {"return_prompt_token_ids": True} if request.get("return_token_ids") is True else {}
    moved = {*_SAMPLING, *_UNSUPPORTED, "stream_options", "response_format", "return_token_ids"}
    others = generation_settings(adapter_helpers.omit_members(request, moved))
    return {**others, "input_ids": [*prompt_ids(request)], "sampling_params": sampling, **shown}


def _read_request(request: Json) -> Json:
    """Return only the settings: a prompt has no messages."""
    if not isinstance(request, dict):
        return request
    sampling = members(request.get("sampling_params"))
    settings = {_FROM_SAMPLING.get(name, name): value for name, value in sampling.items()}
    return {**adapter_helpers.omit_members(request, _PROMPT), **settings}


def _read_response(body: Json) -> Json:
    """Translate a response, which is a list if `n` or the number of prompts is above 1."""
    answers: list[Json] = items(body) if isinstance(body, list) else [body]
    if not answers or not all(isinstance(value_at(one, "meta_info"), dict) for one in answers):
        return adapter_helpers.translate_error(body)
    last = members(answers[-1])
    choices: list[Json] = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text(value_at(one, "text"))},
            "finish_reason": value_at(one, "meta_info", "finish_reason", "type"),
            **({"token_ids": value_at(one, "output_ids")} if isinstance(value_at(one, "output_ids"), list) else {}),
        }
        for index, one in enumerate(answers)
    ]
    shared = {**_prompt_ids(last), **_usage(answers), **_abort_error(last)}
    return {"object": "chat.completion", "choices": choices, **shared}


@dataclass(frozen=True, kw_only=True)
class _Progress:
    """The text and the number of ids that the events of one choice have added so far."""

    text: str = ""
    id_count: int = 0

    def new_output(self, event: JsonObject) -> tuple[str, list[Json]]:
        """Return the text and the ids that an event adds."""
        output, ids = text(event.get("text")), items(event.get("output_ids"))
        count = integer(value_at(event, "meta_info", "completion_tokens"))
        if self.id_count and ids and count not in (None, len(ids)):
            return output, ids
        shared = zip(self.text, output, strict=False)
        different = next((place for place, (one, other) in enumerate(shared) if one != other), len(output))
        return output[len(self.text) if output.startswith(self.text) else different :], ids[self.id_count :]


def _read_events(values: Iterable[Json]) -> Iterator[Json]:
    progress: dict[int, _Progress] = {}
    for value in values:
        event = members(value)
        if not isinstance(event.get("meta_info"), dict):
            yield adapter_helpers.translate_error(value)
            continue
        index = integer(event.get("index")) or 0
        is_first, before = index not in progress, progress.get(index, _Progress())
        addition, ids = before.new_output(event)
        progress[index] = _Progress(text=before.text + addition, id_count=before.id_count + len(ids))
        reason = value_at(event["meta_info"], "finish_reason", "type")
        choice: JsonObject = {"index": index, "delta": {"content": addition}, "finish_reason": reason}
        if isinstance(event.get("output_ids"), list):
            choice["token_ids"] = ids
        yield {
            "object": "chat.completion.chunk",
            "choices": [choice],
            **(_prompt_ids(event) if is_first else {}),
            **(_usage([value]) if reason is not None else {}),
            **_abort_error(event),
        }


def _prompt_ids(answer: JsonObject) -> JsonObject:
    ids = answer.get("prompt_token_ids")
    return {"prompt_token_ids": ids} if isinstance(ids, list) else {}


def _abort_error(answer: JsonObject) -> JsonObject:
    """Return the error of a failed generation. One that a client aborted (`/abort_request`, a pause) has no status and is no error."""
    reason = value_at(answer, "meta_info", "finish_reason")
    has_failed = value_at(reason, "type") == ABORTED and value_at(reason, "status_code") is not None
    return {"error": {"message": value_at(reason, "message")}} if has_failed else {}


def _usage(answers: list[Json]) -> JsonObject:
    """Return the usage: prompt tokens once, completion tokens of all choices together."""
    prompt, cached = (integer(value_at(answers[0], "meta_info", name)) for name in ("prompt_tokens", "cached_tokens"))
    counts = [integer(value_at(one, "meta_info", "completion_tokens")) for one in answers]
    if prompt is None or None in counts:
        return {}
    output = sum(filter(None, counts))
    details: JsonObject = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"usage": {**adapter_helpers.token_counts(prompt, output), **details}}


SGLANG_GENERATE = Api(
    name="sglang-generate",
    title="SGLang's generate",
    path="/sglang/generate",
    write_request=_write_request,
    read_request=_read_request,
    read_response=_read_response,
    read_events=_read_events,
    answer_member="text: …, meta_info: {…}",
    is_raw=True,
    option="sglang",
    counts_reasoning=False,
)
