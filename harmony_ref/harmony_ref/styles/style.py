"""The named styles: the form of a prompt, but never its content.

A style fixes the order of recipient and channel, the form of content types, and the channel of results. It also fixes
blank lines and order of the developer's sections. Tools and the JSON of calls have one spelling per style, and so
have the lines of cutoff and channels. In every style, each message appears once, in order, under its role and name, with its whole
content. Texts that a chat template loses or quotes twice are not a part of its style.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harmony_ref.messages.message_types import DeveloperContent, SystemContent
from harmony_ref.rendering.render import developer_text
from harmony_ref.styles import sections
from harmony_ref.styles.json_form import JsonForm


class RecipientPlace(StrEnum):
    """Position of the recipient in a header. A header without a channel has only the role section."""

    ROLE = "in the role section, before the channel"
    COMMENTARY = "after the channel if that is commentary, for every role"
    CALLS = "after the channel in messages of the assistant"


class ContentTypeForm(StrEnum):
    """The form of a content type in a header."""

    AS_GIVEN = "as given"
    MARKER_ADDED = "as given, behind <|constrain|>"
    MARKED = "its name behind <|constrain|>"
    PLAIN = "its name alone"


class ResultChannel(StrEnum):
    """The channel in the result of a tool."""

    AS_GIVEN = "as given"
    OMITTED = "omitted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """The form in which one renderer writes a prompt.

    Attributes:
        name: the style's name, and its key in `STYLES`.
        source: the renderer or document that defines it.
        recipient: position of the recipient in a header.
        content_type: form of a content type in a header.
        call_type: default content type of calls to functions, if any.
        result_channel: form of the channel in the result of a tool.
        arguments: spelling of the JSON of a call.
        system_content: returns the content that a system message is rendered from.
        developer_text: returns the text of a developer message.
    """

    name: str
    source: str
    recipient: RecipientPlace = RecipientPlace.ROLE
    content_type: ContentTypeForm = ContentTypeForm.AS_GIVEN
    call_type: str | None = None
    result_channel: ResultChannel = ResultChannel.AS_GIVEN
    arguments: JsonForm = JsonForm.AS_GIVEN
    system_content: Callable[[SystemContent], SystemContent] = sections.as_given
    developer_text: Callable[[DeveloperContent], str] = developer_text


HARMONY_0_0_8: Final = Style(name="harmony_0_0_8", source="openai-harmony 0.0.8, encoding.rs:756-903")

OSS_HARMONY_0_0_11: Final = Style(
    name="oss_harmony_0_0_11",
    source="oss-harmony 0.0.11, the fork that vLLM uses",
    recipient=RecipientPlace.COMMENTARY,
    content_type=ContentTypeForm.MARKER_ADDED,
    system_content=sections.oss_system_content,
    developer_text=sections.oss_developer_text,
)

GUIDE: Final = Style(
    name="guide",
    source='OpenAI Harmony Response Format, "Receiving tool calls"',
    recipient=RecipientPlace.CALLS,
    content_type=ContentTypeForm.MARKED,
)

HF_TEMPLATE: Final = Style(
    name="hf_template",
    source="openai/gpt-oss-120b on Hugging Face, chat_template.jinja",
    content_type=ContentTypeForm.PLAIN,
    call_type="json",
    arguments=JsonForm.PYTHON,
    system_content=sections.template_system_content,
    developer_text=sections.hf_developer_text,
)

OLLAMA: Final = Style(
    name="ollama",
    source="ollama/ollama, gptossDefaultTemplate in x/create/client/create.go",
    recipient=RecipientPlace.CALLS,
    content_type=ContentTypeForm.MARKED,
    call_type="json",
    result_channel=ResultChannel.OMITTED,
    arguments=JsonForm.GO,
    system_content=sections.template_system_content,
    developer_text=sections.ollama_developer_text,
)

STYLES: Final[Mapping[str, Style]] = MappingProxyType(
    {style.name: style for style in (HARMONY_0_0_8, OSS_HARMONY_0_0_11, GUIDE, HF_TEMPLATE, OLLAMA)}
)
"""Every style by its name, the library's first."""
