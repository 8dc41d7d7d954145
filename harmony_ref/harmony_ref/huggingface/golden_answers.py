"""Compute this package's results for the golden vectors of the kinds `template` and `response_schema`.

Input and result are the JSON of golden/schema/template.schema.json and golden/schema/response_schema.schema.json.
A vector only names a third-party template or schema, by its sha256; the caller provides it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from harmony_ref.errors import HarmonyError
from harmony_ref.huggingface.chat_template import (
    ChatTemplateError,
    ChatTemplateFailedError,
    ChatTemplateInputError,
    ChatTemplateRaisedError,
    ChatTemplateSecurityError,
    ChatTemplateSyntaxError,
    ChatTemplateUndefinedError,
    render_chat_template,
)
from harmony_ref.huggingface.response_schema import ResponseSchemaError, parse_response
from harmony_ref.json_value import Json
from harmony_ref.messages.message_types import Conversation, Role
from harmony_ref.parsing.parser import parse
from harmony_ref.rendering.render import (
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
)
from harmony_ref.tokenizer.tokens import decode, encode_with_special_tokens

_Objects: TypeAlias = Sequence[Mapping[str, Json]]

_NAMED: Final = {"name", "sha256"}

_RENDERERS: Final[Mapping[str, Callable[[Conversation], list[int]]]] = {
    "conversation": render_conversation,
    "completion": render_conversation_for_completion,
    "training": render_conversation_for_training,
}
_ERROR_KINDS: Final[Mapping[type[ChatTemplateError], str]] = {
    ChatTemplateSyntaxError: "syntax",
    ChatTemplateUndefinedError: "undefined",
    ChatTemplateRaisedError: "raised",
    ChatTemplateSecurityError: "security",
    ChatTemplateFailedError: "failed",
    ChatTemplateInputError: "input",
}


class AbsentSourceError(HarmonyError):
    """A vector needs a text that the caller did not provide: its name, and its sha256 or that of canonical JSON."""

    def __init__(self, *, name: str, sha256: str) -> None:
        super().__init__(f"missing {name}: a text with sha256 {sha256}")
        self.name = name
        self.sha256 = sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class _WrittenDate:
    """The date of a vector: its texts by format."""

    texts: Mapping[str, Json]

    def strftime(self, format: str, /) -> str:  # noqa: A002 - the name datetime gives it
        return str(self.texts[format])


def canonical_sha256(schema: Json) -> str:
    """Return the sha256 of a schema in vectors: of its JSON with sorted members, without blanks, in UTF-8."""
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def template_answer(given: Mapping[str, Json], templates: Mapping[str, str]) -> dict[str, Json]:
    """Return the result for the input of a `template` vector.

    Args:
        given: the input.
        templates: texts of templates by their sha256.

    Raises:
        AbsentSourceError: the template is not among them.
    """
    answer = _render(given, _source(given["template"], templates))
    harmony = given.get("harmony")
    if isinstance(harmony, Mapping):
        answer["harmony"] = _harmony_rendering(harmony)
        if harmony.get("tokens") and "text" in answer:
            answer["tokens"] = encode_with_special_tokens(str(answer["text"]))
    return answer


def response_schema_answer(given: Mapping[str, Json], schemas: Mapping[str, Json]) -> dict[str, Json]:
    """Return the result for the input of a `response_schema` vector.

    Args:
        given: the input.
        schemas: schemas by `canonical_sha256`.

    Raises:
        AbsentSourceError: the schema is not among them.
    """
    schema = cast("Mapping[str, Json]", _source(given["schema"], schemas))
    response = str(given["response"])
    try:
        answer: dict[str, Json] = {"value": parse_response(response, schema)}
    except ResponseSchemaError as error:
        answer = {"error": {"kind": error.problem.value}}
    harmony = given.get("harmony")
    if isinstance(harmony, Mapping):
        answer["harmony"] = _harmony_reading(response, harmony)
    return answer


def _source(value: Json, sources: Mapping[str, object]) -> object:
    if not isinstance(value, Mapping) or set(value) != _NAMED:
        return value
    sha256 = str(value["sha256"])
    if sha256 not in sources:
        raise AbsentSourceError(name=str(value["name"]), sha256=sha256)
    return sources[sha256]


def _render(given: Mapping[str, Json], template: object) -> dict[str, Json]:
    continued = given.get("continue_final_message", False)
    now = given.get("now")
    try:
        rendered = render_chat_template(
            str(template),
            cast("_Objects | None", given["messages"]) or (),
            tools=cast("_Objects | None", given.get("tools")),
            documents=cast("_Objects | None", given.get("documents")),
            add_generation_prompt=bool(given.get("add_generation_prompt", False)),
            continue_final_message=continued if isinstance(continued, str) else bool(continued),
            special_tokens=cast("Mapping[str, Json]", given.get("special_tokens") or {}),
            variables=cast("Mapping[str, Json]", given.get("variables") or {}),
            now=_WrittenDate(texts=now) if isinstance(now, Mapping) else None,
        )
    except ChatTemplateError as error:
        return {"error": _error(error)}
    if not rendered.generation_spans:
        return {"text": rendered.text}
    return {"text": rendered.text, "generation_spans": [list(span) for span in rendered.generation_spans]}


def _error(error: ChatTemplateError) -> dict[str, Json]:
    """Return the part of an error that implementations share; they differ in the texts of refusals."""
    shared: dict[str, Json] = {"kind": _ERROR_KINDS[type(error)]}
    match error:
        case (
            ChatTemplateSyntaxError(problem=text)
            | ChatTemplateUndefinedError(problem=text)
            | ChatTemplateRaisedError(message=text)
            | ChatTemplateFailedError(exception=text)
        ):
            shared["text"] = text
        case _:
            pass
    if error.line is not None:
        shared["line"] = error.line
    return shared


def _harmony_rendering(harmony: Mapping[str, Json]) -> Json:
    try:
        conversation = Conversation.from_dict({"messages": harmony["messages"]})
        ids = _RENDERERS[str(harmony["mode"])](conversation)
    except HarmonyError as error:
        return {"error": {"kind": "render", "text": str(error)}}
    return {"text": decode(ids), "tokens": ids} if harmony.get("tokens") else {"text": decode(ids)}


def _harmony_reading(response: str, harmony: Mapping[str, Json]) -> Json:
    role = harmony["role"]
    ids = harmony.get("tokens")
    completion = encode_with_special_tokens(response) if ids is None else cast("Sequence[int]", ids)
    try:
        messages = parse(completion, None if role is None else Role(str(role)))
    except HarmonyError as error:
        return {"error": {"kind": "parse", "text": str(error)}}
    return {"messages": [message.to_dict() for message in messages]}
