"""SGLang's /generate: a prompt continued as it stands, as a text or as ids (SGLang 0.5.23, entrypoints/http_server.py, managers/io_struct.py).

An event of a stream holds all that was written so far; with `--incremental-streaming-output` it holds what is new. What is counted tells which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harmony_conformance.apis.api import Api
from harmony_conformance.apis.chat_completion import ABORTED
from harmony_conformance.apis.harmony_prompt import prompt_ids, settings
from harmony_conformance.apis.request_fields import failure, refuse_others, without
from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text

_SAMPLING: Mapping[str, str] = MappingProxyType(
    {
        "max_tokens": "max_new_tokens",
        "max_completion_tokens": "max_new_tokens",
        "seed": "sampling_seed",
        **{
            name: name
            for name in (
                "temperature",
                "top_p",
                "stop",
                "n",
                "frequency_penalty",
                "presence_penalty",
                "ignore_eos",
                "skip_special_tokens",
            )
        },
    }
)
"""Members of a chat request that are sampling parameters here; the server refuses any that it does not know."""
_ASKED = {"max_new_tokens": "max_tokens", "sampling_seed": "seed"}
_NOT_HERE: Mapping[str, tuple[Json, ...]] = MappingProxyType({"logprobs": (None, False), "top_logprobs": (None,)})
"""Members of a chat request that are others here."""
_PROMPT = frozenset({"text", "input_ids", "sampling_params", "return_prompt_token_ids"})


def _spell(request: JsonObject) -> JsonObject:
    """The conversation as the ids of its prompt."""
    refuse_others(request, _NOT_HERE)
    sampling: JsonObject = {named: request[name] for name, named in _SAMPLING.items() if request.get(name) is not None}
    shown: JsonObject = {"return_prompt_token_ids": True} if request.get("return_token_ids") is True else {}
    moved = {*_SAMPLING, *_NOT_HERE, "stream_options", "response_format", "return_token_ids"}
    named = settings(without(request, moved))
    return {**named, "input_ids": list[Json](prompt_ids(request)), "sampling_params": sampling, **shown}


def _asked(request: Json) -> Json:
    """The settings alone: the prompt is not made of messages."""
    if not isinstance(request, dict):
        return request
    sampling = members(request.get("sampling_params"))
    return {**without(request, _PROMPT), **{_ASKED.get(name, name): value for name, value in sampling.items()}}


def _whole(body: Json) -> Json:
    """The completion; with `n`, or for several prompts, the answer is a list."""
    told: list[Json] = items(body) if isinstance(body, list) else [body]
    if not told or not all(isinstance(at(one, "meta_info"), dict) for one in told):
        return failure(body)
    last = members(told[-1])
    choices: list[Json] = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text(at(one, "text"))},
            "finish_reason": _ending(at(one, "meta_info")),
            **({"token_ids": at(one, "output_ids")} if isinstance(at(one, "output_ids"), list) else {}),
        }
        for index, one in enumerate(told)
    ]
    return {"object": "chat.completion", "choices": choices, **_fed(last), **_usage(told), **_aborted(last)}


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What the events of one choice have told so far."""

    text: str = ""
    ids: int = 0

    def new_in(self, event: JsonObject) -> tuple[str, list[Json]]:
        """The text and the ids that an event adds."""
        said, ids = text(event.get("text")), items(event.get("output_ids"))
        counted = number(at(event, "meta_info", "completion_tokens"))
        if not self.ids or not ids or counted in (None, len(ids)):
            return said[_shared(self.text, said) :], ids[self.ids :]
        return said, ids

    def after(self, said: str, ids: list[Json]) -> _Told:
        """The same behind an event that added this."""
        return _Told(text=self.text + said, ids=self.ids + len(ids))


def _shared(before: str, now: str) -> int:
    """How many characters two texts begin with alike."""
    if now.startswith(before):
        return len(before)
    return next((place for place, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), len(now))


def _chunks(values: Iterable[Json]) -> Iterator[Json]:
    told: dict[int, _Told] = {}
    for value in values:
        event = members(value)
        if not isinstance(event.get("meta_info"), dict):
            yield failure(value)
            continue
        index = number(event.get("index")) or 0
        before = told.get(index)
        said, ids = (before or _Told()).new_in(event)
        told[index] = (before or _Told()).after(said, ids)
        ending = _ending(event["meta_info"])
        choice: JsonObject = {"index": index, "delta": {"content": said}, "finish_reason": ending}
        if isinstance(event.get("output_ids"), list):
            choice["token_ids"] = ids
        yield {
            "object": "chat.completion.chunk",
            "choices": [choice],
            **(_fed(event) if before is None else {}),
            **(_usage([value]) if ending is not None else {}),
            **_aborted(event),
        }


def _fed(held: JsonObject) -> JsonObject:
    return {"prompt_token_ids": held["prompt_token_ids"]} if isinstance(held.get("prompt_token_ids"), list) else {}


def _ending(told: Json) -> Json:
    """`stop` or `length`; what matched stands beside it."""
    return at(told, "finish_reason", "type")


def _aborted(held: JsonObject) -> JsonObject:
    """The error of a generation that failed: one that was told to stop (`/abort_request`, a pause) has no status, and its answer is what there is so far."""
    reason = at(held, "meta_info", "finish_reason")
    has_failed = at(reason, "type") == ABORTED and at(reason, "status_code") is not None
    return {"error": {"message": at(reason, "message")}} if has_failed else {}


def _usage(told: list[Json]) -> JsonObject:
    """The counts: the prompt's once, and what was written of all choices."""
    fed = number(at(told[0], "meta_info", "prompt_tokens"))
    counts = [number(at(one, "meta_info", "completion_tokens")) for one in told]
    if fed is None or None in counts:
        return {}
    written = sum(count for count in counts if count is not None)
    cached = number(at(told[0], "meta_info", "cached_tokens"))
    details: JsonObject = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"usage": {"prompt_tokens": fed, "completion_tokens": written, "total_tokens": fed + written, **details}}


SGLANG_GENERATE = Api(
    name="sglang-generate",
    title="SGLang's generate",
    path="/sglang/generate",
    write_request=_spell,
    read_request=_asked,
    read_response=_whole,
    read_events=_chunks,
    answer_member="text: …, meta_info: {…}",
    is_raw=True,
    option="sglang",
    counts_reasoning=False,
)
