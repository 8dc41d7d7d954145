"""Render a Hugging Face chat template as transformers does, to compare it with Harmony.

    rendered = render_chat_template(template, messages, tools=tools, add_generation_prompt=True, now=date.today())

The result is the text of `tokenizer.apply_chat_template(…, tokenize=False)` of transformers 5.23.0. The caller of a
template tokenizes its text with special tokens, so a marker in the text of a user becomes the special token. Harmony
never does that (`harmony_ref.render`).

    ChatTemplateError                   (a HarmonyError)
    ├── ChatTemplateSyntaxError         the template is not valid Jinja
    ├── ChatTemplateUndefinedError      it uses a part of an undefined value
    ├── ChatTemplateRaisedError         it called raise_exception
    ├── ChatTemplateSecurityError       it tried to leave the sandbox
    ├── ChatTemplateFailedError         its code raised another exception
    └── ChatTemplateInputError          invalid messages, tools, documents or variables

Stricter than transformers: the date is an argument, and tools are JSON schemas, not Python functions. All values are
JSON; transformers writes other objects as a text with the name of their class.
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
"""Names of reasoning in messages, by preference; most templates read the first, that of gpt-oss the second."""
_OWN_VARIABLES: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
_TAG: Final = "CONTINUE_FINAL_MESSAGE_TAG "
"""Appended to the text to continue, and searched in the result; its blank is missing if the template trims."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedChat:
    """The prompt of a chat template.

    Attributes:
        text: the prompt.
        generation_spans: start and end, in characters of `text`, of each `{% generation %}` block in rendering order.
            The source of `return_assistant_tokens_mask` in transformers.
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
        messages: the conversation, at least one message. Null members are dropped. Reasoning under any of its names
            (`reasoning_content`, `thinking`, `reasoning`) is copied to the first two.
        tools: JSON schemas of functions.
        documents: objects with `title` and `text`, for templates with documents.
        add_generation_prompt: True to append the header of the next assistant message.
        continue_final_message: True to end the text at the end of the last message's content; a string names another
            member to continue.
        special_tokens: the tokenizer's `special_tokens_map`, such as `bos_token`.
        variables: other variables of the template; they override special tokens.
        now: the date for `strftime_now`.

    Raises:
        ChatTemplateError: one of its subclasses.
    """
    if not messages:
        raise ChatTemplateInputError("no message", pointer="/messages", expected="at least one")
    if continue_final_message and add_generation_prompt:
        raise ChatTemplateInputError(
            "both continue_final_message and add_generation_prompt are set",
            pointer="/continue_final_message",
            expected="one of them: either the last message is continued or a new one begins",
        )
    try:
        chat = [_message(message, f"/messages/{index}") for index, message in enumerate(messages)]
        template_variables: _Object = {
            **_variables(special_tokens, variables),
            "messages": chat,
            "tools": _objects(tools, "/tools"),
            "documents": _objects(documents, "/documents"),
            "add_generation_prompt": add_generation_prompt,
        }
    except RecursionError as error:
        raise ChatTemplateInputError("too many levels", pointer="/", expected="values of fewer levels") from error
    continued = _mark_end(chat[-1], template, continue_final_message)
    text, spans = jinja_sandbox.render(template, template_variables, now=now)
    if continued is not None:
        text = _cut_at_mark(text, continued)
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
        raise ChatTemplateInputError(f"got {type(message).__name__}", pointer=pointer, expected="an object")
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
                f"got {type(value).__name__}", pointer=f"{pointer}/{index}", expected="an object"
            )
    return [_plain(value, f"{pointer}/{index}") for index, value in enumerate(values)]


def _plain(value: Json, pointer: str) -> Json:
    """Copy a value as plain JSON: a subclass could have methods that the sandbox does not know."""
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
            raise ChatTemplateInputError(f"got {type(value).__name__}", pointer=pointer, expected="JSON")


def _plain_object(value: Mapping[str, Json], pointer: str) -> _Object:
    plain: _Object = {}
    for name, member in value.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise ChatTemplateInputError(f"invalid name {name!r}", pointer=pointer, expected="a string")
        plain[str.__str__(name)] = _plain(member, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    return plain


def _mark_end(message: _Object, template: str, continue_final_message: bool | str) -> str | None:
    """Mark the end of the text to continue in the message; return that text, or None without one."""
    if not continue_final_message:
        return None
    name = "content" if continue_final_message is True else continue_final_message
    pointer = f"/messages/-1/{name}"
    if name not in message:
        raise ChatTemplateInputError("nothing to continue", pointer=pointer, expected="a text")
    text = message[name]
    # reasoning was copied to several names, and the template may read any of them
    names = [copy for copy in _REASONING if message.get(copy) == text] if name in _REASONING else [name]
    if not any(copy in template for copy in names):
        raise ChatTemplateInputError("the template does not read it", pointer=pointer, expected="a member it reads")
    match text:
        case str():
            message.update(dict.fromkeys(names, text + _TAG))
            return text
        case list() | tuple():
            for part in reversed(text):
                if isinstance(part, dict) and isinstance(part_text := part.get("text"), str):
                    part["text"] = part_text + _TAG
                    return part_text
            raise ChatTemplateInputError("no part has a text", pointer=pointer, expected='a part {"text": …}')
        case _:
            raise ChatTemplateInputError(f"got {type(text).__name__}", pointer=pointer, expected="a text")


def _cut_at_mark(text: str, continued: str) -> str:
    mark = _TAG.strip()
    if continued.strip() not in text or mark not in text:
        raise ChatTemplateInputError(
            "the template changes the last message",
            pointer="/messages/-1",
            expected="a text that is unchanged in the result",
        )
    end = text.rindex(mark)
    is_trimmed = not text.startswith(_TAG, end)  # then the text to continue is trimmed as well
    return text[:end].rstrip() if is_trimmed else text[:end]
