"""Defects of request options about sampling: `n`, `stop`, `logprobs`, `seed` and `tool_choice`."""

from collections.abc import Callable
from dataclasses import replace
from math import exp

from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    BodyChange,
    drop_members,
    in_answer,
    in_choices,
    in_list,
    in_member,
)
from harmony_conformance.reference_server.defects.stages import (
    Defect,
    OnJson,
    OnRequest,
    OnSampling,
    OnUnscriptedOutput,
)


def _reasoning_in_content(choice: JsonObject) -> JsonObject:
    """Move the reasoning of every choice but the first into its content."""
    if not integer(choice.get("index")):
        return choice
    return in_answer(
        lambda part: (
            {**part, "content": text(part["reasoning"]) + text(part.get("content")), "reasoning": None}
            if part.get("reasoning")
            else part
        )
    )(choice)


def _usage_of_one_choice(body: JsonObject) -> JsonObject:
    usage, count = members(body.get("usage")), len(items(body.get("choices")))
    completion, prompt = integer(usage.get("completion_tokens")), integer(usage.get("prompt_tokens"))
    if count < 2 or completion is None or prompt is None:  # noqa: PLR2004 - several
        return body
    one = completion // count
    return {**body, "usage": {**usage, "completion_tokens": one, "total_tokens": prompt + one}}


def _in_logprobs(change: Callable[[list[Json]], list[Json]]) -> BodyChange:
    def changed(choice: JsonObject) -> JsonObject:
        entries = items(members(choice.get("logprobs")).get("content"))
        return {**choice, "logprobs": {"content": change(entries)}} if entries else choice

    return in_choices(changed)


def _ids_from_zero(message: JsonObject) -> JsonObject:
    """Number the calls of each response from 0, as TGI does."""
    calls = items(message.get("tool_calls"))
    numbered: list[Json] = [{**members(call), "id": f"call_{index}"} for index, call in enumerate(calls)]
    return {**message, "tool_calls": numbered} if calls else message


def _as_probability(entry: JsonObject) -> JsonObject:
    value = entry.get("logprob")
    return {**entry, "logprob": exp(value)} if isinstance(value, float) else entry


def _as_probabilities(entries: list[Json]) -> list[Json]:
    return [in_list("top_logprobs", _as_probability)(_as_probability(members(entry))) for entry in entries]


DEFECTS = (
    Defect(
        "same-id-for-all",
        "Every response has the same id.",
        OnJson(lambda body: {**body, "id": "chatcmpl-123"} if "id" in body else body),
    ),
    Defect(
        "allowed-tools-ignored",
        "A `tool_choice` with a list of allowed functions is treated as `auto`.",
        OnRequest(
            lambda body: (
                {**body, "tool_choice": "auto"} if value_at(body, "tool_choice", "type") == "allowed_tools" else body
            )
        ),
    ),
    Defect(
        "parallel-calls-unasked",
        "`parallel_tool_calls: false` is ignored.",
        OnRequest(drop_members("parallel_tool_calls")),
        ("O12", "M15"),
    ),
    Defect(
        "call-ids-from-zero",
        "The ids of calls start at `call_0` in each response.",
        OnJson(in_choices(in_member("message", _ids_from_zero))),
    ),
    Defect(
        "n-ignored", "`n` is ignored: the response always has one choice.", OnRequest(drop_members("n")), ("M15", "O12")
    ),
    Defect(
        "choices-all-first", "Every choice has the index 0.", OnJson(in_choices(lambda choice: {**choice, "index": 0}))
    ),
    Defect(
        "later-choices-unparsed",
        "Only the first choice is parsed: the reasoning of the others appears in their content.",
        OnJson(in_choices(_reasoning_in_content)),
    ),
    Defect("usage-of-one-choice", "`usage` counts the tokens of one of several choices.", OnJson(_usage_of_one_choice)),
    Defect("stop-ignored", "`stop` is ignored.", OnRequest(drop_members("stop"))),
    Defect(
        "stop-string-shown",
        "Generation ends at a stop string, but the string remains in the content.",
        OnSampling(lambda sampling: replace(sampling, shows_stops=True)),
    ),
    Defect("logprobs-ignored", "`logprobs` is ignored.", OnRequest(drop_members("logprobs", "top_logprobs")), ("M15",)),
    Defect(
        "logprobs-shifted",
        "The first log probability is missing, so each token has that of the next.",
        OnJson(_in_logprobs(lambda entries: entries[1:])),
    ),
    Defect(
        "logprobs-as-probabilities",
        "`logprob` is a probability instead of its logarithm.",
        OnJson(_in_logprobs(_as_probabilities)),
    ),
    Defect(
        "seed-ignored",
        "`seed` is ignored: the same request gets a different answer each time.",
        OnUnscriptedOutput(
            lambda request, words: (
                words if request.seed is None else replace(words, content=f"{words.serial}. {words.content}")
            )
        ),
    ),
)
