"""The encoding: text to tokens and back, conversations to prompts, completions to messages."""

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cached_property
from typing import Final, Literal, TypeVar

from pydantic import BaseModel

from harmony_ref import errors as core_errors
from harmony_ref import render as render_message
from harmony_ref.compat import special_tokens
from harmony_ref.compat.arguments import role_value, strictness, token_id, token_ids
from harmony_ref.compat.errors import HarmonyError
from harmony_ref.compat.messages import Conversation, Message, Role
from harmony_ref.compat.values import conversation_values, message_from_value, message_value
from harmony_ref.parsing.parser import parse
from harmony_ref.rendering.render import (
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
)
from harmony_ref.tokenizer import tokens as core_tokens


class HarmonyEncodingName(str, Enum):  # noqa: UP042 - as in the original: a StrEnum has another format()
    """The available encodings."""

    HARMONY_GPT_OSS = "HarmonyGptOss"

    def __str__(self) -> str:
        return str(self.value)


class RenderConversationConfig(BaseModel):
    """Options for rendering a conversation."""

    auto_drop_analysis: bool = True


class RenderOptions(BaseModel):
    """Facts about the conversation of a single message."""

    conversation_has_function_tools: bool = False


_Decoded = TypeVar("_Decoded", str, bytes)

_NO_SPECIAL_TOKENS: Final[AbstractSet[str]] = set()


class HarmonyEncoding:
    """The encoding of the gpt-oss models, created by `load_harmony_encoding`."""

    def __init__(self, inner: HarmonyEncodingName) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The encoding's name."""
        return self._inner.value

    @cached_property
    def special_tokens_set(self) -> set[str]:
        """The text of every special token."""
        return set(special_tokens.ALL)

    def render_conversation_for_completion(
        self,
        conversation: Conversation,
        next_turn_role: Role,
        config: RenderConversationConfig | None = None,
    ) -> list[int]:
        """Return the ids of a prompt: all messages, then `<|start|>` and the role of the next turn.

        Raises:
            HarmonyError: a message that Harmony has no form for.
            ValueError: a value that is not a message in the wire form.
        """
        drop = _drops_analysis(config)
        values = conversation_values(conversation)
        role = role_value(next_turn_role)
        try:
            return render_conversation_for_completion(values, role, auto_drop_analysis=drop)
        except core_errors.RenderError as error:
            raise HarmonyError(str(error)) from error

    def render_conversation(
        self, conversation: Conversation, config: RenderConversationConfig | None = None
    ) -> list[int]:
        """Return the ids of all messages in order.

        Raises:
            RuntimeError: a message that Harmony has no form for.
            ValueError: a value that is not a message in the wire form.
        """
        drop = _drops_analysis(config)
        try:
            return render_conversation(conversation_values(conversation), auto_drop_analysis=drop)
        except core_errors.RenderError as error:
            raise RuntimeError(str(error)) from error

    def render_conversation_for_training(
        self, conversation: Conversation, config: RenderConversationConfig | None = None
    ) -> list[int]:
        """Render as `render_conversation`, but end a final answer that is the last message in `<|return|>`."""
        drop = _drops_analysis(config)
        try:
            return render_conversation_for_training(conversation_values(conversation), auto_drop_analysis=drop)
        except core_errors.RenderError as error:
            raise RuntimeError(str(error)) from error

    def render(self, message: Message, render_options: RenderOptions | None = None) -> list[int]:
        """Return the ids of one message; raises as `render_conversation`."""
        note = render_options is not None and render_options.conversation_has_function_tools is True
        try:
            return render_message(message_value(message), conversation_has_function_tools=note)
        except core_errors.RenderError as error:
            raise RuntimeError(str(error)) from error

    def parse_messages_from_completion_tokens(
        self, tokens: Sequence[int], role: Role | None = None, *, strict: bool = True
    ) -> list[Message]:
        """Return the messages of a whole completion.

        Args:
            tokens: the ids, with or without the last stop token.
            role: the role at the end of the prompt, after its last `<|start|>`; None if `<|start|>` comes first.
            strict: False to read a first message that stops before its `<|message|>` as content.

        Raises:
            HarmonyError: the tokens are not Harmony.
            TypeError: an id that is not an integer.
            OverflowError: an id that is negative or has more than 32 bits.
        """
        ids = token_ids(tokens)
        prompt_role = None if role is None else role_value(role)
        try:
            messages = parse(ids, prompt_role, strict=strictness(strict))
        except core_errors.HarmonyError as error:
            raise HarmonyError(str(error)) from error
        return [message_from_value(message) for message in messages]

    def decode_utf8(self, tokens: Sequence[int]) -> str:
        """Return the text of the tokens, whose bytes must be valid UTF-8.

        Raises:
            HarmonyError: an id that is not in the vocabulary, or bytes that are not UTF-8.
        """
        return _decode(core_tokens.decode_utf8, tokens)

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | AbstractSet[str] = _NO_SPECIAL_TOKENS,
        disallowed_special: Literal["all"] | Collection[str] = "all",
    ) -> list[int]:
        """Return the ids of a text.

        Args:
            text: the text; lone surrogates become U+FFFD.
            allowed_special: the special tokens that are encoded as such.
            disallowed_special: special tokens that are refused; "all" refuses each that is not allowed. A special token
                that is neither allowed nor refused is encoded as ordinary text.

        Raises:
            HarmonyError: the text contains a special token that is refused.
        """
        special_tokens.refuse_disallowed(text, allowed_special, disallowed_special)
        return special_tokens.encode(text, allowed_special)

    def decode(self, tokens: Sequence[int], errors: str = "replace") -> str:
        """Return the text of the tokens; `errors` handles bytes that are not UTF-8, as in `bytes.decode`.

        Raises:
            HarmonyError: an id that is not in the vocabulary.
        """
        return _decode(core_tokens.decode_bytes, tokens).decode("utf-8", errors=errors)

    def is_special_token(self, token: int) -> bool:
        """Return True if the id is that of a special token."""
        return core_tokens.is_special(token_id(token))

    def stop_tokens(self) -> list[int]:
        """The tokens that end a message."""
        return sorted(core_tokens.STOP_TOKENS)

    def stop_tokens_for_assistant_actions(self) -> list[int]:
        """The tokens that end the model's turn."""
        return sorted(core_tokens.STOP_TOKENS_FOR_ASSISTANT_ACTIONS)


def _drops_analysis(config: RenderConversationConfig | None) -> bool:
    """Return the setting. The bindings read any value that is not a boolean as the default."""
    return config is None or config.auto_drop_analysis is not False


def _decode(decode: Callable[[Sequence[int]], _Decoded], tokens: Sequence[int]) -> _Decoded:
    try:
        return decode(token_ids(tokens))
    except core_errors.HarmonyError as error:
        raise HarmonyError(str(error)) from error


def load_harmony_encoding(name: str | HarmonyEncodingName) -> HarmonyEncoding:
    """Return the encoding of this name. The vocabulary is read from the package once, and shared.

    Raises:
        ValueError: an unknown encoding.
    """
    value = name.value if isinstance(name, HarmonyEncodingName) else str(name)
    if value not in [encoding.value for encoding in HarmonyEncodingName]:
        raise ValueError(f"Invalid HarmonyEncodingName: {value}")
    core_tokens.encoding()
    return HarmonyEncoding(HarmonyEncodingName(value))
