"""Defects of request options about sampling: `n`, `stop`, `logprobs`, `seed` and `tool_choice`."""

from collections.abc import Callable
from dataclasses import replace
from math import exp

from harmony_conformance.json_value import Json, JsonObject, items, members, number, text
from harmony_conformance.reference_server.defects.body_changes import Body, in_choices, without
from harmony_conformance.reference_server.defects.stages import Defect, OnJson, OnRequest, OnSampling, OnWords
from harmony_conformance.reference_server.model.generation import Words
from harmony_conformance.reference_server.requests.chat_request import ChatRequest


def _reasoning_in_content(choice: JsonObject) -> JsonObject:
    """Move the reasoning of every choice but the first into its content."""
    if not number(choice.get("index")):
        return choice
    changed = dict(choice)
    for name in ("message", "delta"):
        part = members(choice.get(name))
        if part.get("reasoning"):
            changed[name] = {**part, "content": text(part["reasoning"]) + text(part.get("content")), "reasoning": None}
    return changed


def _usage_of_one_choice(body: JsonObject) -> JsonObject:
    usage, count = members(body.get("usage")), len(items(body.get("choices")))
    completion, prompt = number(usage.get("completion_tokens")), number(usage.get("prompt_tokens"))
    if count < 2 or completion is None or prompt is None:  # noqa: PLR2004 - several
        return body
    one = completion // count
    return {**body, "usage": {**usage, "completion_tokens": one, "total_tokens": prompt + one}}


def _in_logprobs(change: Callable[[list[Json]], list[Json]]) -> Body:
    def changed(choice: JsonObject) -> JsonObject:
        entries = items(members(choice.get("logprobs")).get("content"))
        return {**choice, "logprobs": {"content": change(entries)}} if entries else choice

    return in_choices(changed)


def _as_probabilities(entries: list[Json]) -> list[Json]:
    return [_as_probability(members(entry)) for entry in entries]


def _as_probability(entry: JsonObject) -> JsonObject:
    value = entry.get("logprob")
    top = items(entry.get("top_logprobs"))
    alternatives: JsonObject = {"top_logprobs": _as_probabilities(top)} if "top_logprobs" in entry else {}
    return {**entry, "logprob": exp(value) if isinstance(value, float) else value, **alternatives}


def _numbered_answer(request: ChatRequest, words: Words) -> Words:
    return replace(words, content=f"{words.serial}. {words.content}") if request.seed is not None else words


def _ids_from_zero(choice: JsonObject) -> JsonObject:
    """Number the calls of each response from 0, as TGI does."""
    message = members(choice.get("message"))
    if not message.get("tool_calls"):
        return choice
    calls: list[Json] = [{**members(one), "id": f"call_{n}"} for n, one in enumerate(items(message["tool_calls"]))]
    return {**choice, "message": {**message, "tool_calls": calls}}


def _allowed_tools_as_auto(body: JsonObject) -> JsonObject:
    is_list = members(body.get("tool_choice")).get("type") == "allowed_tools"
    return {**body, "tool_choice": "auto"} if is_list else body


DEFECTS = (
    Defect(
        id="same-id-for-all",
        summary="Every response has the same id.",
        change=OnJson(lambda body: {**body, "id": "chatcmpl-123"} if "id" in body else body),
    ),
    Defect(
        id="allowed-tools-ignored",
        summary="A `tool_choice` with a list of allowed functions is treated as `auto`.",
        change=OnRequest(_allowed_tools_as_auto),
    ),
    Defect(
        id="parallel-calls-unasked",
        catalogue=("O12", "M15"),
        summary="`parallel_tool_calls: false` is ignored.",
        change=OnRequest(without("parallel_tool_calls")),
    ),
    Defect(
        id="call-ids-from-zero",
        summary="The ids of calls start at `call_0` in each response.",
        change=OnJson(in_choices(_ids_from_zero)),
    ),
    Defect(
        id="n-ignored",
        catalogue=("M15", "O12"),
        summary="`n` is ignored: the response always has one choice.",
        change=OnRequest(without("n")),
    ),
    Defect(
        id="choices-all-first",
        summary="Every choice has the index 0.",
        change=OnJson(in_choices(lambda choice: {**choice, "index": 0})),
    ),
    Defect(
        id="later-choices-unparsed",
        summary="Only the first choice is parsed: the reasoning of the others appears in their content.",
        change=OnJson(in_choices(_reasoning_in_content)),
    ),
    Defect(
        id="usage-of-one-choice",
        summary="`usage` counts the tokens of one of several choices.",
        change=OnJson(_usage_of_one_choice),
    ),
    Defect(id="stop-ignored", summary="`stop` is ignored.", change=OnRequest(without("stop"))),
    Defect(
        id="stop-string-shown",
        summary="Generation ends at a stop string, but the string remains in the content.",
        change=OnSampling(lambda sampling: replace(sampling, shows_stops=True)),
    ),
    Defect(
        id="logprobs-ignored",
        catalogue=("M15",),
        summary="`logprobs` is ignored.",
        change=OnRequest(without("logprobs", "top_logprobs")),
    ),
    Defect(
        id="logprobs-shifted",
        summary="The first log probability is missing, so each token has that of the next.",
        change=OnJson(_in_logprobs(lambda entries: entries[1:])),
    ),
    Defect(
        id="logprobs-as-probabilities",
        summary="`logprob` is a probability instead of its logarithm.",
        change=OnJson(_in_logprobs(_as_probabilities)),
    ),
    Defect(
        id="seed-ignored",
        summary="`seed` is ignored: the same request gets a different answer each time.",
        change=OnWords(_numbered_answer),
    ),
)
