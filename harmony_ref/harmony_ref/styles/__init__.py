"""Rendering styles by name: the accepted forms of a prompt.

from harmony_ref.styles import STYLES, accepted_renderings, render_in_style

prompt = render_in_style(conversation, STYLES["guide"])
prompts = {rendering.ids: rendering.styles for rendering in accepted_renderings(conversation)}
"""

from harmony_ref.styles.history import History, kept_indices
from harmony_ref.styles.json_form import JsonForm
from harmony_ref.styles.style import (
    GUIDE,
    HARMONY_0_0_8,
    HF_TEMPLATE,
    OLLAMA,
    OSS_HARMONY_0_0_11,
    STYLES,
    ContentTypeForm,
    RecipientPlace,
    ResultChannel,
    Style,
)
from harmony_ref.styles.styled_rendering import Rendering, accepted_renderings, render_in_style

__all__ = [
    "GUIDE",
    "HARMONY_0_0_8",
    "HF_TEMPLATE",
    "OLLAMA",
    "OSS_HARMONY_0_0_11",
    "STYLES",
    "ContentTypeForm",
    "History",
    "JsonForm",
    "RecipientPlace",
    "Rendering",
    "ResultChannel",
    "Style",
    "accepted_renderings",
    "kept_indices",
    "render_in_style",
]
