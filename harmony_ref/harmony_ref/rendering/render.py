"""Conversation → tokens, as openai-harmony 0.0.8 renders it (encoding.rs:175-300, 756-903).

    <|start|> HEADER <|message|> CONTENT (<|end|> | <|call|> | <|return|>)

Nothing stands between two messages. Every string of the caller is ordinary text, never a special token. Parts of a
message are encoded one by one. An assistant message with a recipient ends in `<|call|>`; `<|return|>` is only written
for training.
"""

import marshal
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from harmony_ref.errors import MessageError, RenderError
from harmony_ref.json_value import Json
from harmony_ref.memo import Memo
from harmony_ref.messages.declarations import ChannelConfig, ResponseFormat, ToolDescription, ToolNamespaceConfig, Tools
from harmony_ref.messages.header import encode_field, header_ids
from harmony_ref.messages.json_numbers import json_text
from harmony_ref.messages.message_types import Content, DeveloperContent, Message, Role, SystemContent, TextContent
from harmony_ref.rendering.typescript import json_schema_to_typescript
from harmony_ref.tokenizer import tokens

ANALYSIS: Final = "analysis"
FINAL: Final = "final"
FUNCTIONS: Final = "functions"

_FUNCTIONS_NOTE: Final = "\nCalls to these tools must go to the commentary channel: 'functions'."
_SECTION: Final = "\n\n"

_SIGNATURES: Final = Memo[bytes, str]()
"""The TypeScript of schemas by their value: the same tools come with every turn."""

_LONGEST_KEY: Final = 16_384
"""Bytes; larger schemas are not remembered."""


def render(message: Message, *, conversation_has_function_tools: bool = False) -> list[int]:
    """The ids of one message.

    Args:
        message: the message.
        conversation_has_function_tools: whether a system message is to say where function calls go.

    Raises:
        RenderError: a tool without a name, or content in a role that may not carry it.
        MessageError: a string or number that JSON cannot carry.
    """
    rendered: list[int] = []
    _render_onto(rendered, message, note=conversation_has_function_tools)
    return rendered


def render_conversation(conversation: Iterable[Message], *, auto_drop_analysis: bool = True) -> list[int]:
    """The ids of all messages in order.

    Args:
        conversation: a Conversation, or its messages.
        auto_drop_analysis: whether reasoning is left out as `without_dropped_analysis` does.

    Raises:
        RenderError: a message that Harmony has no form for.
        MessageError: a string or number that JSON cannot carry.
    """
    messages = list(conversation)
    note = has_function_tools(messages)
    kept = without_dropped_analysis(messages) if auto_drop_analysis else messages
    rendered: list[int] = []
    try:
        for message in kept:
            _render_onto(rendered, message, note=note)
    except MessageError as error:
        raise MessageError(subject="conversation", problem=error.problem) from None
    return rendered


def render_conversation_for_completion(
    conversation: Iterable[Message], next_turn_role: Role = Role.ASSISTANT, *, auto_drop_analysis: bool = True
) -> list[int]:
    """The ids of a prompt: all messages, then `<|start|>` and the role that is to speak next.

    Raises:
        RenderError: a message that Harmony has no form for.
        MessageError: a string or number that JSON cannot carry.
    """
    prompt = render_conversation(conversation, auto_drop_analysis=auto_drop_analysis)
    prompt.append(tokens.START)
    prompt += encode_field(next_turn_role.value)
    return prompt


def render_conversation_for_training(conversation: Iterable[Message], *, auto_drop_analysis: bool = True) -> list[int]:
    """The ids of a training example: when the last message is the assistant's final answer, it ends in `<|return|>`.

    Raises:
        RenderError: a message that Harmony has no form for.
        MessageError: a string or number that JSON cannot carry.
    """
    messages = list(conversation)
    rendered = render_conversation(messages, auto_drop_analysis=auto_drop_analysis)
    if messages and _is_final_answer(messages[-1]):
        rendered[-1] = tokens.RETURN
    return rendered


def without_dropped_analysis(messages: Sequence[Message]) -> list[Message]:
    """The messages without the reasoning that led to an answer already given (encoding.rs:195-219).

    Only when the last assistant message is on `final`: every message on `analysis`, of any role, that comes before
    the first message on `final`, of any role, is left out. Reasoning between two finals stays.
    """
    last_of_assistant = next((message for message in reversed(messages) if message.author.role is Role.ASSISTANT), None)
    if last_of_assistant is None or last_of_assistant.channel != FINAL:
        return list(messages)
    first_final = next(index for index, message in enumerate(messages) if message.channel == FINAL)
    earlier = [message for message in messages[:first_final] if message.channel != ANALYSIS]
    return [*earlier, *messages[first_final:]]


def has_function_tools(messages: Iterable[Message]) -> bool:
    """Whether any developer content declares a tool under the key `functions` (encoding.rs:175-191)."""
    # The test stands in the comprehension: most messages are text, and a call for each part would cost more than it.
    declared = [
        part for message in messages for part in message.content if isinstance(part, DeveloperContent) and part.tools
    ]
    return any(map(_declares_functions, declared))


def text_of(message: Message) -> str:
    """The content of a message as one text, such as `render` encodes it."""
    return "".join(_part_text(part) for part in message.content)


def system_text(content: SystemContent, *, conversation_has_function_tools: bool = False) -> str:
    """The text of a system message. Sections that are None vanish; an empty string is a line.

    Raises:
        MessageError: a default in a tool's schema that JSON cannot carry.
    """
    about = [
        content.model_identity,
        None if content.knowledge_cutoff is None else f"Knowledge cutoff: {content.knowledge_cutoff}",
        None if content.conversation_start_date is None else f"Current date: {content.conversation_start_date}",
    ]
    lines = [line for line in about if line is not None]
    sections = ["\n".join(lines)] if lines else []
    if content.reasoning_effort is not None:
        sections.append(f"Reasoning: {content.reasoning_effort.value.lower()}")
    if content.tools:
        sections.append(tools_text(content.tools))
    if content.channel_config is not None and content.channel_config.valid_channels:
        note = _FUNCTIONS_NOTE if conversation_has_function_tools else ""
        sections.append(_channels_text(content.channel_config) + note)
    return _SECTION.join(sections)


def developer_text(content: DeveloperContent) -> str:
    """The text of a developer message: instructions as they are, then the tools, then the response formats.

    Raises:
        MessageError: a default in a tool's schema that JSON cannot carry.
    """
    sections: list[str] = []
    if content.instructions is not None:
        sections += ["# Instructions", content.instructions]
    if content.tools:
        sections.append(tools_text(content.tools))
    if content.response_formats:
        sections.append(response_formats_text(content.response_formats))
    return _SECTION.join(sections)


def response_formats_text(formats: Iterable[ResponseFormat]) -> str:
    """The section `# Response Formats` (Harmony guide, "Structured output"); schemas are compact JSON.

    Raises:
        MessageError: a number in a schema that JSON cannot carry.
    """
    return _SECTION.join(["# Response Formats", *(_response_format_text(form) for form in formats)])


def tools_text(tools: Tools) -> str:
    """The section `# Tools`: a block per namespace, in the order of the keys (encoding.rs:756-794).

    Raises:
        MessageError: a default in a tool's schema that JSON cannot carry.
    """
    return _SECTION.join(["# Tools", *(_namespace_text(tools[key]) for key in sorted(tools))])


def _channels_text(config: ChannelConfig) -> str:
    required = " Channel must be included for every message." if config.channel_required else ""
    return f"# Valid channels: {', '.join(config.valid_channels)}.{required}"


def _response_format_text(form: ResponseFormat) -> str:
    comments = [f"// {line}" for line in _lines(form.description or "")]
    return f"## {form.name}{_SECTION}" + "\n".join([*comments, json_text(form.schema)])


def _namespace_text(namespace: ToolNamespaceConfig) -> str:
    comment = "// " if namespace.tools else ""
    lines = [f"## {namespace.name}\n"]
    lines += [comment + line for line in _lines(namespace.description or "")]
    if namespace.tools:
        lines.append(f"namespace {namespace.name} {{\n")
        for tool in namespace.tools:
            lines += [f"// {line}" for line in _lines(tool.description)]
            lines.append(f"type {tool.name} = {_signature(tool)} => any;\n")
        lines.append(f"}} // namespace {namespace.name}")
    return "\n".join(lines)


def _signature(tool: ToolDescription) -> str:
    if tool.parameters is None:
        return "()"
    key = _value_of(tool.parameters)
    found = _SIGNATURES.get(key) if key else None
    if found is not None:
        return found
    signature = f"(_: {json_schema_to_typescript(tool.parameters)})"
    return _SIGNATURES.remember(key, signature) if key and len(key) <= _LONGEST_KEY else signature


def _value_of(schema: Json) -> bytes | None:
    """A schema as bytes, different for any two that could be rendered differently; None if it is not plain JSON.

    Schemas are dicts and may be changed, so neither their identity nor a hash would do. marshal is the quickest thing
    that tells 1, 1.0 and True apart and keeps the order of keys; its version 2 depends on nothing but the value.
    """
    try:
        return marshal.dumps(schema, 2)  # type: ignore[arg-type]  # what it cannot take is the ValueError
    except ValueError:
        return None


def _lines(text: str) -> list[str]:
    r"""The lines as Rust counts them: ended by \n or \r\n and nothing else; a last empty one does not count."""
    *ended, last = text.split("\n")
    lines = [line.removesuffix("\r") for line in ended]
    return [*lines, last] if last else lines


def _render_onto(rendered: list[int], message: Message, *, note: bool) -> None:
    """Append the ids of a message; `note` is whether a system message is to say where function calls go."""
    role = message.author.role
    rendered += header_ids(message)
    for part in message.content:
        if isinstance(part, TextContent):
            rendered += tokens.encode_text(part.text)
        else:
            rendered += _declaration_tokens(part, role, note=note)
    is_call = role is Role.ASSISTANT and message.recipient is not None
    rendered.append(tokens.CALL if is_call else tokens.END)


def _declaration_tokens(part: SystemContent | DeveloperContent, role: Role, *, note: bool) -> Sequence[int]:
    match part:
        case SystemContent():
            _allow_in(Role.SYSTEM, "SystemContent", role)
            return _preamble_tokens(system_text(part, conversation_has_function_tools=note))
        case DeveloperContent():
            _allow_in(Role.DEVELOPER, "DeveloperContent", role)
            return _preamble_tokens(developer_text(part))


def _allow_in(allowed: Role, kind: str, role: Role) -> None:
    if role is not allowed:
        raise RenderError(
            f"{kind} may only appear in {allowed.value} messages, found in {role.value.capitalize()}",
            found=f"{kind} in a message of the role {role.value}",
            expected=f"the role {allowed.value}",
        )


@lru_cache(maxsize=128)
def _preamble_tokens(text: str) -> tuple[int, ...]:
    """System and developer texts are long and come again with every turn."""
    return tuple(tokens.encode_text(text))


def _part_text(part: Content) -> str:
    match part:
        case TextContent():
            return part.text
        case SystemContent():
            return system_text(part)
        case DeveloperContent():
            return developer_text(part)


def _declares_functions(part: Content) -> bool:
    if not isinstance(part, DeveloperContent) or not part.tools:
        return False
    return FUNCTIONS in part.tools and bool(part.tools[FUNCTIONS].tools)


def _is_final_answer(message: Message) -> bool:
    return message.author.role is Role.ASSISTANT and message.channel == FINAL
