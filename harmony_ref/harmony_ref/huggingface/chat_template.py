"""A Hugging Face chat template rendered as transformers renders it, to compare it with Harmony.

    rendered = render_chat_template(template, messages, tools=tools, add_generation_prompt=True, now=date.today())

The result is the text that `tokenizer.apply_chat_template(…, tokenize=False)` of transformers 5.23.0 gives. A chat template
yields text, and its caller tokenises that text with special tokens recognised: text of a user that spells a marker becomes
the marker. Harmony never does that (`harmony_ref.render`).

    ChatTemplateError                   (a HarmonyError)
    ├── ChatTemplateSyntaxError         the template is not Jinja
    ├── ChatTemplateUndefinedError      it takes a part of something that is not there
    ├── ChatTemplateRaisedError         it called raise_exception
    ├── ChatTemplateSecurityError       it wants out of the sandbox
    ├── ChatTemplateFailedError         its code raised anything else
    └── ChatTemplateInputError          messages, tools, documents or variables that no template is given

Stricter than transformers: the date is an argument, values are JSON and nothing else (there, other objects become a text
that names their class), and tools are JSON schemas, not Python functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from harmony_ref.huggingface import jinja_sandbox
from harmony_ref.huggingface.chat_template_errors import (
    ChatTemplateError,
    ChatTemplateFailedError,
    ChatTemplateInputError,
    ChatTemplateRaisedError,
    ChatTemplateSecurityError,
    ChatTemplateSyntaxError,
    ChatTemplateUndefinedError,
)
from harmony_ref.huggingface.jinja_sandbox import Moment
from harmony_ref.json_value import Json

__all__ = [
    "ChatTemplateError",
    "ChatTemplateFailedError",
    "ChatTemplateInputError",
    "ChatTemplateRaisedError",
    "ChatTemplateSecurityError",
    "ChatTemplateSyntaxError",
    "ChatTemplateUndefinedError",
    "Moment",
    "RenderedChat",
    "render_chat_template",
]

_Object: TypeAlias = dict[str, Json]

_NOTHING: Final[Mapping[str, Json]] = {}
_REASONING: Final = ("reasoning_content", "thinking", "reasoning")
"""The members under which reasoning comes, the first preferred; templates read the first, that of gpt-oss the second."""
_OWN_VARIABLES: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
_TAG: Final = "CONTINUE_FINAL_MESSAGE_TAG "
"""Put after the text to continue and looked for in the result; the blank shows whether the template trims."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedChat:
    """What a chat template wrote.

    Attributes:
        text: the prompt.
        generation_spans: start and end, in characters of `text`, of each `{% generation %}` block, in the order in which
            they were rendered; what transformers makes `return_assistant_tokens_mask` of.
    """

    text: str
    generation_spans: tuple[tuple[int, int], ...]


def render_chat_template(  # noqa: PLR0913 - what apply_chat_template of transformers takes
    template: str,
    messages: Sequence[Mapping[str, Json]],
    *,
    tools: Sequence[Mapping[str, Json]] | None = None,
    documents: Sequence[Mapping[str, Json]] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool | str = False,
    special_tokens: Mapping[str, Json] = _NOTHING,
    variables: Mapping[str, Json] = _NOTHING,
    now: Moment | None = None,
) -> RenderedChat:
    """Render a conversation.

    Args:
        template: the Jinja template, `chat_template` of a tokenizer.
        messages: the conversation, at least one message. Members that are null are left out; reasoning under any of its
            names (`reasoning_content`, `thinking`, `reasoning`) is found under the first two.
        tools: JSON schemas of functions.
        documents: objects with `title` and `text`, for templates that take them.
        add_generation_prompt: whether the header of the next assistant message is to follow.
        continue_final_message: whether the text ends where that of the last message ends; a string names the member to
            continue, instead of `content`.
        special_tokens: the tokenizer's `special_tokens_map`: `bos_token` and its like.
        variables: anything else that the template names; they win over special tokens.
        now: what `strftime_now` writes.

    Raises:
        ChatTemplateError: one of its kinds.
    """
    if not messages:
        raise ChatTemplateInputError("no message", pointer="/messages", expected="at least one")
    if continue_final_message and add_generation_prompt:
        raise ChatTemplateInputError(
            "both continue_final_message and add_generation_prompt are set",
            pointer="/continue_final_message",
            expected="one of them: either the last message goes on or a new one begins",
        )
    try:
        chat = [_message(message, f"/messages/{index}") for index, message in enumerate(messages)]
        given: _Object = {
            **_variables(special_tokens, variables),
            "messages": chat,
            "tools": _objects(tools, "/tools"),
            "documents": _objects(documents, "/documents"),
            "add_generation_prompt": add_generation_prompt,
        }
    except RecursionError as error:
        raise ChatTemplateInputError("too many levels", pointer="/", expected="values of fewer levels") from error
    continued = _mark_end(chat[-1], template, continue_final_message)
    text, spans = jinja_sandbox.render(template, given, now=now)
    if continued is not None:
        text = _up_to_mark(text, continued)
    return RenderedChat(text=text, generation_spans=tuple(spans))


def _variables(special_tokens: Mapping[str, Json], variables: Mapping[str, Json]) -> _Object:
    for pointer, names in (("/special_tokens", special_tokens), ("/variables", variables)):
        for name in sorted(_OWN_VARIABLES.intersection(names)):
            raise ChatTemplateInputError(
                "the name is taken", pointer=f"{pointer}/{name}", expected="the argument of that name"
            )
    return {
        **{name: _plain(value, f"/special_tokens/{name}") for name, value in special_tokens.items()},
        **{name: _plain(value, f"/variables/{name}") for name, value in variables.items()},
    }


def _message(message: Mapping[str, Json], pointer: str) -> _Object:
    if not isinstance(message, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not type-checked
        raise ChatTemplateInputError(f"{type(message).__name__} is no message", pointer=pointer, expected="an object")
    fields: _Object = {name: value for name, value in _plain_object(message, pointer).items() if value is not None}
    reasoning = next((fields[name] for name in _REASONING if name in fields), None)
    if reasoning is None:
        return fields
    return {"thinking": reasoning, **fields, "reasoning_content": reasoning}


def _objects(values: Sequence[Mapping[str, Json]] | None, pointer: str) -> list[Json] | None:
    if values is None:
        return None
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise ChatTemplateInputError(
                f"{type(value).__name__} is none", pointer=f"{pointer}/{index}", expected="an object"
            )
    return [_plain(value, f"{pointer}/{index}") for index, value in enumerate(values)]


def _plain(value: Json, pointer: str) -> Json:
    """A copy that is JSON through and through: a subclass could carry methods that the sandbox does not know."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Mapping():
            return _plain_object(value, pointer)
        case list():
            return [_plain(item, f"{pointer}/{index}") for index, item in enumerate(value)]
        case tuple():
            return tuple(_plain(item, f"{pointer}/{index}") for index, item in enumerate(value))
        case _:
            raise ChatTemplateInputError(f"{type(value).__name__} is not JSON", pointer=pointer, expected="JSON")


def _plain_object(value: Mapping[str, Json], pointer: str) -> _Object:
    plain: _Object = {}
    for name, member in value.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise ChatTemplateInputError(f"{name!r} is no name", pointer=pointer, expected="members named by texts")
        plain[str.__str__(name)] = _plain(member, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    return plain


def _mark_end(message: _Object, template: str, continue_final_message: bool | str) -> str | None:
    """Mark the end of the text that is to go on, in the message; that text, or None where nothing is to go on."""
    if continue_final_message is False or not continue_final_message:
        return None
    name = "content" if continue_final_message is True else continue_final_message
    pointer = f"/messages/-1/{name}"
    if name not in message:
        raise ChatTemplateInputError("nothing to continue", pointer=pointer, expected="a text")
    text = message[name]
    # reasoning was copied under several names: the template may read any of them
    names = [copy for copy in _REASONING if message.get(copy) == text] if name in _REASONING else [name]
    if not any(copy in template for copy in names):
        raise ChatTemplateInputError("the template does not read it", pointer=pointer, expected="a member it reads")
    match text:
        case str():
            message.update(dict.fromkeys(names, text + _TAG))
            return text
        case list() | tuple():
            return _mark_last_part(text, pointer)
        case _:
            raise ChatTemplateInputError(f"{type(text).__name__} is no text", pointer=pointer, expected="a text")


def _mark_last_part(parts: Sequence[Json], pointer: str) -> str:
    for part in reversed(parts):
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            part["text"] = text + _TAG
            return text
    raise ChatTemplateInputError("no part has a text", pointer=pointer, expected='a part {"text": …}')


def _up_to_mark(text: str, continued: str) -> str:
    mark = _TAG.strip()
    if continued.strip() not in text or mark not in text:
        raise ChatTemplateInputError(
            "the template does not write the last message as it is",
            pointer="/messages/-1",
            expected="a text that stands in the result unchanged",
        )
    end = text.rindex(mark)
    if text.startswith(_TAG, end):
        return text[:end]
    return text[:end].rstrip()  # the template trims, and so does what it is to go on from
