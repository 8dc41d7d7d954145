"""Rendering of conversations as tokens, equal to openai-harmony 0.0.8 (encoding.rs:175-300, 756-903).

    <|start|> HEADER <|message|> CONTENT (<|end|> | <|call|> | <|return|>)

Messages follow each other directly. Every string of the caller is ordinary text, never a special token. Parts of a
message are encoded one by one. An assistant message with a recipient ends in `<|call|>`; `<|return|>` is only written
for training.

All functions here raise MessageError for a string or number that JSON cannot express, for example in a tool's schema.
The `render…` functions also raise RenderError for a message that Harmony cannot express.
"""

import marshal
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from harmony_ref.errors import MessageError, RenderError
from harmony_ref.json_value import Json
from harmony_ref.memo import Memo
from harmony_ref.messages.declarations import ResponseFormat, ToolDescription, ToolNamespaceConfig, Tools
from harmony_ref.messages.header import encode_field, header_ids
from harmony_ref.messages.json_numbers import json_text
from harmony_ref.messages.message_types import DeveloperContent, Message, Role, SystemContent, TextContent
from harmony_ref.rendering.typescript import json_schema_to_typescript
from harmony_ref.tokenizer import tokens

ANALYSIS: Final = "analysis"
FINAL: Final = "final"
FUNCTIONS: Final = "functions"

_FUNCTIONS_NOTE: Final = "\nCalls to these tools must go to the commentary channel: 'functions'."
_SECTION: Final = "\n\n"

_SIGNATURES: Final = Memo[bytes, str]()  # the TypeScript of schemas by their value; the same tools come with every turn
_LONGEST_KEY: Final = 16_384  # maximum bytes of a cached schema


def render(message: Message, *, conversation_has_function_tools: bool = False) -> list[int]:
    """Return the ids of one message.

    `conversation_has_function_tools` adds the channel of function calls to a system message.

    Raises:
        RenderError: a tool without a name, or content in a role that may not have it.
        MessageError: a string or number that JSON cannot express.
    """
    return _render_all([message], note=conversation_has_function_tools)


def render_conversation(conversation: Iterable[Message], *, auto_drop_analysis: bool = True) -> list[int]:
    """Return the ids of all messages in order; `auto_drop_analysis` applies `without_dropped_analysis` first."""
    messages = list(conversation)
    note = has_function_tools(messages)
    if auto_drop_analysis:
        messages = without_dropped_analysis(messages)
    try:
        return _render_all(messages, note=note)
    except MessageError as error:
        raise MessageError(subject="conversation", problem=error.problem) from None


def render_conversation_for_completion(
    conversation: Iterable[Message], next_turn_role: Role = Role.ASSISTANT, *, auto_drop_analysis: bool = True
) -> list[int]:
    """Return the ids of a prompt: all messages, then `<|start|>` and the role of the next message."""
    prompt = render_conversation(conversation, auto_drop_analysis=auto_drop_analysis)
    prompt.append(tokens.START)
    prompt += encode_field(next_turn_role.value)
    return prompt


def render_conversation_for_training(conversation: Iterable[Message], *, auto_drop_analysis: bool = True) -> list[int]:
    """Return the ids of a training example; `<|return|>` ends it if the assistant's final answer is last."""
    messages = list(conversation)
    rendered = render_conversation(messages, auto_drop_analysis=auto_drop_analysis)
    if messages and is_final_answer(messages[-1]):
        rendered[-1] = tokens.RETURN
    return rendered


def without_dropped_analysis(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without the reasoning before an answer that is in the history (encoding.rs:195-219).

    If the last assistant message is on `final`, all messages on `analysis` before the first message on `final` are
    dropped, of any role. Reasoning between two finals stays.
    """
    last_of_assistant = next((message for message in reversed(messages) if message.author.role is Role.ASSISTANT), None)
    if last_of_assistant is None or last_of_assistant.channel != FINAL:
        return list(messages)
    first_final = next(index for index, message in enumerate(messages) if message.channel == FINAL)
    earlier = [message for message in messages[:first_final] if message.channel != ANALYSIS]
    return [*earlier, *messages[first_final:]]


def has_function_tools(messages: Iterable[Message]) -> bool:
    """Return True if any developer content declares a tool under the key `functions` (encoding.rs:175-191)."""
    # A comprehension, because most messages are text, and a call for each part would cost more than the test.
    declarations = [
        part.tools
        for message in messages
        for part in message.content
        if isinstance(part, DeveloperContent) and part.tools
    ]
    return any(FUNCTIONS in tools and tools[FUNCTIONS].tools for tools in declarations)


def text_of(message: Message) -> str:
    """Return the content of a message as one text, as `render` encodes it."""
    return "".join(
        part.text if isinstance(part, TextContent) else _declaration_text(part, note=False) for part in message.content
    )


def system_text(content: SystemContent, *, conversation_has_function_tools: bool = False) -> str:
    """Return the text of a system message. A section equal to None is omitted; an empty string is a line."""
    lines = [] if content.model_identity is None else [content.model_identity]
    if content.knowledge_cutoff is not None:
        lines.append(f"Knowledge cutoff: {content.knowledge_cutoff}")
    if content.conversation_start_date is not None:
        lines.append(f"Current date: {content.conversation_start_date}")
    sections = ["\n".join(lines)] if lines else []
    if content.reasoning_effort is not None:
        sections.append(f"Reasoning: {content.reasoning_effort.value.lower()}")
    if content.tools:
        sections.append(tools_text(content.tools))
    config = content.channel_config
    if config is not None and config.valid_channels:
        required = " Channel must be included for every message." if config.channel_required else ""
        note = _FUNCTIONS_NOTE if conversation_has_function_tools else ""
        sections.append(f"# Valid channels: {', '.join(config.valid_channels)}.{required}{note}")
    return _SECTION.join(sections)


def developer_text(content: DeveloperContent) -> str:
    """Return the text of a developer message: the instructions unchanged, the tools, then the response formats."""
    sections: list[str] = []
    if content.instructions is not None:
        sections += ["# Instructions", content.instructions]
    if content.tools:
        sections.append(tools_text(content.tools))
    if content.response_formats:
        sections.append(response_formats_text(content.response_formats))
    return _SECTION.join(sections)


def response_formats_text(formats: Iterable[ResponseFormat]) -> str:
    """Return the section `# Response Formats` (Harmony guide, "Structured output"); schemas are compact JSON."""
    sections = ["# Response Formats"]
    for form in formats:
        comments = [f"// {line}" for line in _split_lines(form.description or "")]
        sections += [f"## {form.name}", "\n".join([*comments, json_text(form.schema)])]
    return _SECTION.join(sections)


def tools_text(tools: Tools) -> str:
    """Return the section `# Tools`: a block per namespace, in the order of the keys (encoding.rs:756-794)."""
    return _SECTION.join(["# Tools", *(_namespace_text(tools[key]) for key in sorted(tools))])


def _namespace_text(namespace: ToolNamespaceConfig) -> str:
    comment = "// " if namespace.tools else ""
    lines = [f"## {namespace.name}\n"]
    lines += [comment + line for line in _split_lines(namespace.description or "")]
    if namespace.tools:
        lines.append(f"namespace {namespace.name} {{\n")
        for tool in namespace.tools:
            lines += [f"// {line}" for line in _split_lines(tool.description)]
            lines.append(f"type {tool.name} = {_signature(tool)} => any;\n")
        lines.append(f"}} // namespace {namespace.name}")
    return "\n".join(lines)


def _signature(tool: ToolDescription) -> str:
    if tool.parameters is None:
        return "()"
    key = _cache_key(tool.parameters)
    cached = _SIGNATURES.get(key) if key else None
    if cached is not None:
        return cached
    signature = f"(_: {json_schema_to_typescript(tool.parameters)})"
    return _SIGNATURES.remember(key, signature) if key and len(key) <= _LONGEST_KEY else signature


def _cache_key(schema: Json) -> bytes | None:
    """Return a schema as bytes, different for any two that could be rendered differently; None if it is not plain JSON.

    Schemas are mutable dicts, so neither identity nor a hash identifies them. marshal is the fastest encoder that
    distinguishes 1, 1.0 and True. It preserves the order of keys; its version 2 depends only on the value.
    """
    try:
        return marshal.dumps(schema, 2)  # type: ignore[arg-type]  # other values raise the ValueError
    except ValueError:
        return None


def _split_lines(text: str) -> list[str]:
    r"""Split text into lines as Rust does: only \n or \r\n ends a line; an empty last line does not count."""
    *ended, last = text.split("\n")
    lines = [line.removesuffix("\r") for line in ended]
    return [*lines, last] if last else lines


def _render_all(messages: Iterable[Message], *, note: bool) -> list[int]:
    """Return the ids of messages in order; `note` adds the channel of function calls to a system message."""
    rendered: list[int] = []
    for message in messages:
        role = message.author.role
        rendered += header_ids(message)
        for part in message.content:
            if isinstance(part, TextContent):
                rendered += tokens.encode_text(part.text)
            else:
                rendered += _declaration_tokens(part, role, note=note)
        is_call = message.recipient is not None and role is Role.ASSISTANT
        rendered.append(tokens.CALL if is_call else tokens.END)
    return rendered


def _declaration_tokens(part: SystemContent | DeveloperContent, role: Role, *, note: bool) -> Sequence[int]:
    allowed = Role.SYSTEM if isinstance(part, SystemContent) else Role.DEVELOPER
    if role is not allowed:
        kind = f"{allowed.value.capitalize()}Content"
        raise RenderError(
            f"{kind} may only appear in {allowed.value} messages, found in {role.value.capitalize()}",
            found=f"{kind} in a message of the role {role.value}",
            expected=f"the role {allowed.value}",
        )
    return _encode_declaration(_declaration_text(part, note=note))


def _declaration_text(part: SystemContent | DeveloperContent, *, note: bool) -> str:
    if isinstance(part, SystemContent):
        return system_text(part, conversation_has_function_tools=note)
    return developer_text(part)


@lru_cache(maxsize=128)
def _encode_declaration(text: str) -> tuple[int, ...]:
    """Encode a system or developer text, cached because such texts are long and recur with every turn."""
    return tuple(tokens.encode_text(text))


def is_final_answer(message: Message) -> bool:
    """Return True for an assistant message on `final`."""
    return message.author.role is Role.ASSISTANT and message.channel == FINAL
