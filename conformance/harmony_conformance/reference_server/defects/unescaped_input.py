"""Defects of a renderer that copies values of the request into the prompt without validation, markers included."""

from collections.abc import Sequence

from harmony_conformance.json_value import JsonObject, items, members
from harmony_conformance.reference_server.defects.body_changes import drop_members
from harmony_conformance.reference_server.defects.stages import Defect, OnPrompt, OnPromptAndBody, OnRequest
from harmony_ref import tokens

_EFFORTS = frozenset({"low", "medium", "high"})
_EFFORT_LINE = "Reasoning: medium"
_DATE_LINE = "Current date: "
_USER = "<|start|>user<|message|>"


def _without_unknown_effort(body: JsonObject) -> JsonObject:
    return body if body.get("reasoning_effort") in _EFFORTS else drop_members("reasoning_effort")(body)


def _effort_as_written(sent: JsonObject, prompt: tuple[int, ...]) -> tuple[int, ...]:
    effort = sent.get("reasoning_effort")
    if not isinstance(effort, str) or effort in _EFFORTS:
        return prompt
    return _rewritten(prompt, _EFFORT_LINE, f"Reasoning: {effort}")


def _names_as_written(sent: JsonObject, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Write the `name` of each user message behind the role in its header."""
    users = [members(entry) for entry in items(sent.get("messages")) if members(entry).get("role") == "user"]
    header = tuple(tokens.encode_with_special_tokens(_USER))
    starts = [place for place in range(len(prompt)) if prompt[place : place + len(header)] == header]
    ids, position = list[int](), 0
    for start, user in zip(starts, users, strict=False):
        name = user.get("name")
        named = f"<|start|>user:{name}<|message|>" if isinstance(name, str) and name else _USER
        ids += [*prompt[position:start], *tokens.encode_with_special_tokens(named)]
        position = start + len(header)
    return (*ids, *prompt[position:])


def _rewritten(prompt: Sequence[int], old: str, new: str) -> tuple[int, ...]:
    """Replace a text in the first message of the prompt, with special tokens recognised. A raw prompt may have no whole message."""
    if tokens.END not in prompt:
        return tuple(prompt)
    end = prompt.index(tokens.END)
    return (*tokens.encode_with_special_tokens(tokens.decode(prompt[:end]).replace(old, new, 1)), *prompt[end:])


def _placeholder(prompt: tuple[int, ...]) -> tuple[int, ...]:
    system = tokens.decode(prompt[: prompt.index(tokens.END)] if tokens.END in prompt else ())
    begin = system.find(_DATE_LINE)
    if begin < 0:
        return prompt
    date = system[begin:].partition("\n")[0]
    return _rewritten(prompt, date, f'{_DATE_LINE}{{{{ strftime_now("%Y-%m-%d") }}}}')


DEFECTS = (
    Defect(
        "effort-as-written",
        "A `reasoning_effort` that Harmony does not define is copied into the system message.",
        (OnRequest(_without_unknown_effort), OnPromptAndBody(_effort_as_written)),
    ),
    Defect(
        "author-name-as-written",
        "The `name` of a user message is copied into its header, markers included.",
        OnPromptAndBody(_names_as_written),
    ),
    Defect("date-placeholder", "The current date is an unfilled placeholder of the template.", OnPrompt(_placeholder)),
)
