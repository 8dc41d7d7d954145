"""Defects of the client's texts: they reach the model changed or incomplete."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from harmony_conformance.reference_server.defects.changes.conversation import ConversationChange, each_part
from harmony_conformance.reference_server.defects.stages import Defect, OnConversation, OnPrompt
from harmony_ref import Content, DeveloperContent, Message, Role, TextContent, tokens

_LONG = 100_000  # characters
_WINDOW = 50  # messages


def _each_text(change: Callable[[str], str], *, instructions: bool = False) -> ConversationChange:
    """Change every text of a conversation; the instructions of the developer message only if `instructions` is set."""

    def changed(part: Content) -> Content:
        if isinstance(part, TextContent):
            return replace(part, text=change(part.text))
        if instructions and isinstance(part, DeveloperContent) and part.instructions is not None:
            return replace(part, instructions=change(part.instructions))
        return part

    return each_part(changed)


def _questions_first(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Move each user message before the answer that precedes it."""
    ordered: list[Message] = []
    for message in messages:
        is_next = message.author.role is Role.USER and ordered and ordered[-1].channel == "final"
        ordered.insert(len(ordered) - 1 if is_next else len(ordered), message)
    return tuple(ordered)


def _without_middle(text: str) -> str:
    return text if len(text) <= _LONG else text[: _LONG // 2] + text[-_LONG // 2 :]


def _only_latest(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    instructions = tuple(message for message in messages if message.author.role in (Role.SYSTEM, Role.DEVELOPER))
    turns = tuple(message for message in messages if message not in instructions)
    return messages if len(turns) <= _WINDOW else (*instructions, *turns[-_WINDOW:])


def _specials_in(*authors: str) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Tokenise the content of messages whose header starts with one of `authors` with special tokens recognised."""

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
    """Split a prompt into its messages, each with its `<|start|>`. Text before the first one, as in a raw prompt, is a part too."""
    starts = [place for place, token in enumerate(prompt) if token == tokens.START and place]
    for start, end in pairwise([0, *starts, len(prompt)]):
        yield prompt[start:end]


DEFECTS = (
    Defect(
        "specials-in-results",
        "Only results of functions are tokenised with special tokens recognised: a web page can inject messages.",
        OnPrompt(_specials_in("functions.")),
    ),
    Defect(
        "specials-in-history",
        "Past output of the assistant (answers, reasoning, arguments) is tokenised with special tokens recognised.",
        OnPrompt(_specials_in("assistant")),
    ),
    Defect(
        "specials-in-developer-message",
        "Instructions and tool declarations are tokenised with special tokens recognised.",
        OnPrompt(_specials_in("developer")),
    ),
    Defect(
        "text-stripped",
        "Leading and trailing white space of texts is removed before rendering.",
        OnConversation(_each_text(str.strip)),
    ),
    Defect(
        "null-character-dropped",
        "The character U+0000 is removed from texts.",
        OnConversation(_each_text(lambda text: text.replace("\0", ""))),
    ),
    Defect(
        "text-normalised",
        "Texts are normalised to Unicode NFC: letters with combining marks become other characters.",
        OnConversation(_each_text(lambda text: unicodedata.normalize("NFC", text))),
    ),
    Defect(
        "line-ends-rewritten",
        "CRLF line ends become LF.",
        OnConversation(_each_text(lambda text: text.replace("\r\n", "\n"), instructions=True)),
    ),
    Defect(
        "questions-before-answers",
        "A question appears in the prompt before the answer that precedes it in the request.",
        OnConversation(_questions_first),
    ),
    Defect(
        "long-text-cut",
        "The middle of a long text is dropped without an error.",
        OnConversation(_each_text(_without_middle)),
    ),
    Defect(
        "old-messages-dropped",
        "Old messages of a long conversation are dropped without an error.",
        OnConversation(_only_latest),
    ),
)
