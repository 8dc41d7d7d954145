"""Defects of a renderer that writes what it did not read: words of a request stand in the prompt as they came, markers and all."""

from collections.abc import Sequence

from harmony_conformance.json_value import JsonObject, items, members
from harmony_conformance.reference_server.defects.stages import Defect, OnFeeding, OnPrompt, OnRequest
from harmony_ref import tokens

_EFFORTS = frozenset({"low", "medium", "high"})
_EFFORT_LINE = "Reasoning: medium"
_DATE_LINE = "Current date: "
_USER = "<|start|>user<|message|>"


def _without_unknown_effort(body: JsonObject) -> JsonObject:
    is_known = body.get("reasoning_effort") in _EFFORTS
    return body if is_known else {name: value for name, value in body.items() if name != "reasoning_effort"}


def _effort_as_written(sent: JsonObject, prompt: tuple[int, ...]) -> tuple[int, ...]:
    effort = sent.get("reasoning_effort")
    if not isinstance(effort, str) or effort in _EFFORTS:
        return prompt
    return _rewritten(prompt, _EFFORT_LINE, f"Reasoning: {effort}")


def _names_as_written(sent: JsonObject, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The name of each user who has one stands behind the role."""
    users = [members(entry) for entry in items(sent.get("messages")) if members(entry).get("role") == "user"]
    opened = tuple(tokens.encode_with_special_tokens(_USER))
    starts = [place for place in range(len(prompt)) if prompt[place : place + len(opened)] == opened]
    ids, position = list[int](), 0
    for start, user in zip(starts, users, strict=False):
        name = user.get("name")
        named = f"<|start|>user:{name}<|message|>" if isinstance(name, str) and name else _USER
        ids += [*prompt[position:start], *tokens.encode_with_special_tokens(named)]
        position = start + len(opened)
    return (*ids, *prompt[position:])


def _rewritten(prompt: Sequence[int], old: str, new: str) -> tuple[int, ...]:
    """The prompt with one text of its first message as another, tokenised with special tokens recognised."""
    end = prompt.index(tokens.END)
    system = tokens.decode(prompt[:end]).replace(old, new, 1)
    return (*tokens.encode_with_special_tokens(system), *prompt[end:])


def _placeholder(prompt: tuple[int, ...]) -> tuple[int, ...]:
    end = prompt.index(tokens.END)
    system = tokens.decode(prompt[:end])
    begin = system.find(_DATE_LINE)
    if begin < 0:
        return prompt
    date = system[begin:].partition("\n")[0]
    return _rewritten(prompt, date, f'{_DATE_LINE}{{{{ strftime_now("%Y-%m-%d") }}}}')


DEFECTS = (
    Defect(
        id="effort-as-written",
        catalogue=(),
        summary="A `reasoning_effort` that Harmony does not have is written into the system message as it came.",
        change=(OnRequest(_without_unknown_effort), OnFeeding(_effort_as_written)),
    ),
    Defect(
        id="author-name-as-written",
        catalogue=(),
        summary="The `name` of a user's message is written into its header as it came, markers and all.",
        change=OnFeeding(_names_as_written),
    ),
    Defect(
        id="date-placeholder",
        catalogue=(),
        summary="The current date is a placeholder of the template that nothing was put in for.",
        change=OnPrompt(_placeholder),
    ),
)
