"""Defects of what a client wrote: it reaches the model as something else, or not all of it."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harmony_conformance.reference_server.defects.stages import Defect, OnConversation, OnPrompt
from harmony_ref import DeveloperContent, Message, Role, TextContent, tokens

_LONG = 100_000  # characters
_WINDOW = 50  # messages


def _each_text(change: Callable[[str], str]) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    """The same change of every text of a conversation, instructions left alone."""

    def changed(message: Message) -> Message:
        parts = (
            replace(part, text=change(part.text)) if isinstance(part, TextContent) else part for part in message.content
        )
        return replace(message, content=tuple(parts))

    return lambda messages: tuple(map(changed, messages))


def _each_word(change: Callable[[str], str]) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    """The same change of every text of a conversation, and of the instructions."""

    def instructed(message: Message) -> Message:
        parts = (
            replace(part, instructions=change(part.instructions))
            if isinstance(part, DeveloperContent) and part.instructions is not None
            else part
            for part in message.content
        )
        return replace(message, content=tuple(parts))

    texts = _each_text(change)
    return lambda messages: tuple(map(instructed, texts(messages)))


def _questions_first(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Each message of the user before the answer that it follows."""
    ordered: list[Message] = []
    for message in messages:
        is_next = message.author.role is Role.USER and ordered and ordered[-1].channel == "final"
        ordered.insert(len(ordered) - 1 if is_next else len(ordered), message)
    return tuple(ordered)


def _without_middle(text: str) -> str:
    return text if len(text) <= _LONG else text[: _LONG // 2] + text[-_LONG // 2 :]


def _only_latest(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    framing = tuple(message for message in messages if message.author.role in (Role.SYSTEM, Role.DEVELOPER))
    talk = tuple(message for message in messages if message not in framing)
    return messages if len(talk) <= _WINDOW else (*framing, *talk[-_WINDOW:])


def _specials_in(*authors: str) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """A prompt in which the contents of some authors' messages, named by how their headers begin, were tokenised with special tokens recognised."""

    def changed(prompt: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(token for message in _split(prompt) for token in retokenised(message))

    def retokenised(message: Sequence[int]) -> Sequence[int]:
        if tokens.MESSAGE not in message or not tokens.decode(message[1:]).startswith(authors):
            return message
        begin = message.index(tokens.MESSAGE) + 1
        content = tokens.decode(message[begin:-1])
        return (*message[:begin], *tokens.encode_with_special_tokens(content), message[-1])

    return changed


def _split(prompt: Sequence[int]) -> Iterator[Sequence[int]]:
    """The messages of a prompt, each from its `<|start|>` on."""
    starts = [place for place, token in enumerate(prompt) if token == tokens.START]
    for start, end in zip(starts, [*starts[1:], len(prompt)], strict=True):
        yield prompt[start:end]


DEFECTS = (
    Defect(
        id="specials-in-results",
        catalogue=(),
        summary="Results of functions, and nothing else, are tokenised with special tokens recognised: a web page can write messages.",
        change=OnPrompt(_specials_in("functions.")),
    ),
    Defect(
        id="specials-in-history",
        catalogue=(),
        summary="What the assistant said before (answers, reasoning, arguments) is tokenised with special tokens recognised.",
        change=OnPrompt(_specials_in("assistant")),
    ),
    Defect(
        id="specials-in-developer-message",
        catalogue=(),
        summary="Instructions and tool declarations are tokenised with special tokens recognised.",
        change=OnPrompt(_specials_in("developer")),
    ),
    Defect(
        id="text-stripped",
        catalogue=(),
        summary="White space at the beginning and at the end of texts is removed before they are rendered.",
        change=OnConversation(_each_text(str.strip)),
    ),
    Defect(
        id="null-character-dropped",
        catalogue=(),
        summary="The character U+0000 is removed from texts, or ends them.",
        change=OnConversation(_each_text(lambda text: text.replace("\0", ""))),
    ),
    Defect(
        id="text-normalised",
        catalogue=(),
        summary="Texts are brought into Unicode's form NFC: letters with combining marks become other characters.",
        change=OnConversation(_each_text(lambda text: unicodedata.normalize("NFC", text))),
    ),
    Defect(
        id="line-ends-rewritten",
        catalogue=(),
        summary="Carriage return and line feed become a line feed alone.",
        change=OnConversation(_each_word(lambda text: text.replace("\r\n", "\n"))),
    ),
    Defect(
        id="questions-before-answers",
        catalogue=(),
        summary="A question stands in the prompt before the answer that it follows.",
        change=OnConversation(_questions_first),
    ),
    Defect(
        id="long-text-cut",
        catalogue=(),
        summary="The middle of a long text is left out without an error.",
        change=OnConversation(_each_text(_without_middle)),
    ),
    Defect(
        id="old-messages-dropped",
        catalogue=(),
        summary="Of a long conversation only the latest messages reach the model, without an error.",
        change=OnConversation(_only_latest),
    ),
)
