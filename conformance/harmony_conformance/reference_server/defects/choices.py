"""Defects of what a client may ask of sampling and its report: several choices, stop strings, log probabilities, seeds."""

from collections.abc import Callable
from dataclasses import replace
from math import exp

from harmony_conformance.json_value import Json, JsonObject, items, members, number, text
from harmony_conformance.reference_server.defects.stages import Defect, OnJson, OnRequest, OnSampling, OnWords
from harmony_conformance.reference_server.model.generation import Sampling, Words
from harmony_conformance.reference_server.requests.chat_request import ChatRequest


def _without(*names: str) -> Callable[[JsonObject], JsonObject]:
    return lambda body: {name: value for name, value in body.items() if name not in names}


def _in_choices(change: Callable[[JsonObject], JsonObject]) -> Callable[[JsonObject], JsonObject]:
    return lambda body: {**body, "choices": [change(members(choice)) for choice in items(body.get("choices"))]}


def _all_first(choice: JsonObject) -> JsonObject:
    return {**choice, "index": 0}


def _reasoning_in_content(choice: JsonObject) -> JsonObject:
    """A later choice as it comes where only the first is parsed."""
    if not number(choice.get("index")):
        return choice
    changed = dict(choice)
    for part in ("message", "delta"):
        held = members(choice.get(part))
        if held.get("reasoning"):
            changed[part] = {**held, "content": text(held["reasoning"]) + text(held.get("content")), "reasoning": None}
    return changed


def _one_is_counted(body: JsonObject) -> JsonObject:
    usage, count = members(body.get("usage")), len(items(body.get("choices")))
    spent, prompt = number(usage.get("completion_tokens")), number(usage.get("prompt_tokens"))
    if count < 2 or spent is None or prompt is None:  # noqa: PLR2004 - several
        return body
    one = spent // count
    return {**body, "usage": {**usage, "completion_tokens": one, "total_tokens": prompt + one}}


def _stop_shown(sampling: Sampling) -> Sampling:
    return replace(sampling, shows_stops=True)


def _in_logprobs(change: Callable[[list[Json]], list[Json]]) -> Callable[[JsonObject], JsonObject]:
    def changed(choice: JsonObject) -> JsonObject:
        entries = items(members(choice.get("logprobs")).get("content"))
        return {**choice, "logprobs": {"content": change(entries)}} if entries else choice

    return _in_choices(changed)


def _first_lost(entries: list[Json]) -> list[Json]:
    return entries[1:]


def _as_probabilities(entries: list[Json]) -> list[Json]:
    return [_as_probability(members(entry)) for entry in entries]


def _as_probability(entry: JsonObject) -> JsonObject:
    value = entry.get("logprob")
    top = items(entry.get("top_logprobs"))
    likely: JsonObject = {"top_logprobs": _as_probabilities(top)} if "top_logprobs" in entry else {}
    return {**entry, "logprob": exp(value) if isinstance(value, float) else value, **likely}


def _another_each_time(request: ChatRequest, words: Words) -> Words:
    return replace(words, content=f"{words.serial}. {words.content}") if request.seed is not None else words


def _ids_from_zero(body: JsonObject) -> JsonObject:
    """Calls with ids that count from 0 in each answer, as TGI's do."""

    def change(choice: JsonObject) -> JsonObject:
        held = members(choice.get("message"))
        if not held.get("tool_calls"):
            return choice
        calls: list[Json] = [{**members(one), "id": f"call_{n}"} for n, one in enumerate(items(held["tool_calls"]))]
        return {**choice, "message": {**held, "tool_calls": calls}}

    return _in_choices(change)(body)


def _allowed_as_any(body: JsonObject) -> JsonObject:
    is_list = members(body.get("tool_choice")).get("type") == "allowed_tools"
    return {**body, "tool_choice": "auto"} if is_list else body


def _one_id(body: JsonObject) -> JsonObject:
    return {**body, "id": "chatcmpl-123"} if "id" in body else body


DEFECTS = (
    Defect(
        id="same-id-for-all",
        catalogue=(),
        summary="Every answer has the same id.",
        change=OnJson(_one_id),
    ),
    Defect(
        id="allowed-tools-ignored",
        catalogue=(),
        summary="A `tool_choice` that lists the functions that may be called is taken for `auto`.",
        change=OnRequest(_allowed_as_any),
    ),
    Defect(
        id="parallel-calls-unasked",
        catalogue=("O12", "M15"),
        summary="`parallel_tool_calls: false` is ignored.",
        change=OnRequest(_without("parallel_tool_calls")),
    ),
    Defect(
        id="call-ids-from-zero",
        catalogue=(),
        summary="The ids of calls count from 0 in each answer.",
        change=OnJson(_ids_from_zero),
    ),
    Defect(
        id="n-ignored",
        catalogue=("M15", "O12"),
        summary="`n` is ignored: one choice comes, whatever was asked for.",
        change=OnRequest(_without("n")),
    ),
    Defect(
        id="choices-all-first",
        catalogue=(),
        summary="Every choice has the index 0.",
        change=OnJson(_in_choices(_all_first)),
    ),
    Defect(
        id="later-choices-unparsed",
        catalogue=(),
        summary="Only the first choice is parsed: the reasoning of the others stands in their content.",
        change=OnJson(_in_choices(_reasoning_in_content)),
    ),
    Defect(
        id="usage-of-one-choice",
        catalogue=(),
        summary="`usage` counts the tokens of one of several choices.",
        change=OnJson(_one_is_counted),
    ),
    Defect(
        id="stop-ignored",
        catalogue=(),
        summary="`stop` is ignored.",
        change=OnRequest(_without("stop")),
    ),
    Defect(
        id="stop-string-shown",
        catalogue=(),
        summary="Generation ends at a stop string, and the string stays in the content.",
        change=OnSampling(_stop_shown),
    ),
    Defect(
        id="logprobs-ignored",
        catalogue=("M15",),
        summary="`logprobs` is ignored.",
        change=OnRequest(_without("logprobs", "top_logprobs")),
    ),
    Defect(
        id="logprobs-shifted",
        catalogue=(),
        summary="The first log probability is lost, and each token has that of the next.",
        change=OnJson(_in_logprobs(_first_lost)),
    ),
    Defect(
        id="logprobs-as-probabilities",
        catalogue=(),
        summary="`logprob` is a probability and no logarithm.",
        change=OnJson(_in_logprobs(_as_probabilities)),
    ),
    Defect(
        id="seed-ignored",
        catalogue=(),
        summary="`seed` is ignored: the same request has another answer each time.",
        change=OnWords(_another_each_time),
    ),
)
