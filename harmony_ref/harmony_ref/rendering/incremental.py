"""A growing conversation and its tokens: adding a message only renders that message.

Two events change earlier tokens, and neither encodes the other messages again:

- A `final` of the assistant removes the reasoning before the first `final`. The assistant's next message restores it,
  unless it is a `final` too (`render.without_dropped_analysis`).
- The first function that a developer message declares adds a sentence to each system message.
"""

from collections.abc import Iterable, Sequence

from harmony_ref.errors import MessageError
from harmony_ref.list_view import Snapshot
from harmony_ref.messages.header import encode_field
from harmony_ref.messages.message_types import Message, Role, SystemContent
from harmony_ref.rendering.render import ANALYSIS, FINAL, has_function_tools, is_final_answer, render
from harmony_ref.tokenizer import tokens


class GrowingConversation:
    """Messages and their tokens, which always equal `render_conversation(messages)`.

    A message that cannot be rendered is refused and not added.
    """

    __slots__ = (
        "_auto_drop_analysis",
        "_ends",
        "_ends_in_final",
        "_has_final",
        "_has_note",
        "_messages",
        "_shortened",
        "_whole",
    )

    def __init__(self, messages: Iterable[Message] = (), *, auto_drop_analysis: bool = True) -> None:
        """Begin with these messages; for `auto_drop_analysis` see `render_conversation`."""
        self._auto_drop_analysis = auto_drop_analysis
        self._messages: list[Message] = []
        self._has_note = False
        # True if any message was on `final`, and if the assistant's last one was.
        self._has_final = False
        self._ends_in_final = False
        # The tokens of all messages, those without the reasoning before the first final, and the end of each message
        # in the former. A tool call after a final answer switches from one list to the other and back.
        self._whole: list[int] = []
        self._shortened: list[int] = []
        self._ends: list[int] = []
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> Sequence[int]:
        """Add a message at the end, and return its ids. Raises as `render` does."""
        note = self._has_note or has_function_tools([message])
        try:
            rendered = render(message, conversation_has_function_tools=note)
        except MessageError as error:
            raise MessageError(subject="conversation", problem=error.problem) from None
        if note and not self._has_note:
            self._add_note()
        self._add(message, rendered)
        return rendered

    @property
    def messages(self) -> Sequence[Message]:
        """The messages."""
        return Snapshot(self._messages)

    @property
    def tokens(self) -> Sequence[int]:
        """The ids of the conversation, as of `render_conversation`; not copied."""
        return Snapshot(self._current)

    def for_completion(self, next_turn_role: Role = Role.ASSISTANT) -> list[int]:
        """Return the ids of `render_conversation_for_completion`; copied, not rendered again."""
        return [*self._current, tokens.START, *encode_field(next_turn_role.value)]

    def for_training(self) -> list[int]:
        """Return the ids of `render_conversation_for_training`; copied, not rendered again."""
        rendered = self._current.copy()
        if self._messages and is_final_answer(self._messages[-1]):
            rendered[-1] = tokens.RETURN
        return rendered

    @property
    def _current(self) -> list[int]:
        return self._shortened if self._auto_drop_analysis and self._ends_in_final else self._whole

    def _add(self, message: Message, rendered: Sequence[int]) -> None:
        if message.channel == FINAL:
            self._has_final = True
        if message.author.role is Role.ASSISTANT:
            self._ends_in_final = message.channel == FINAL
        self._messages.append(message)
        self._whole += rendered
        self._ends.append(len(self._whole))
        if self._has_final or message.channel != ANALYSIS:
            self._shortened += rendered

    def _add_note(self) -> None:
        """Render the system messages again, now with the note, and rebuild the tokens."""
        self._has_note = True
        if not any(_has_system_content(message) for message in self._messages):
            return
        before, starts, messages = self._whole, [0, *self._ends], self._messages
        # New lists: snapshots of the old ones stay as they are.
        self._whole, self._shortened, self._ends, self._messages = [], [], [], []
        self._has_final = False
        for message, start, end in zip(messages, starts, starts[1:], strict=False):
            rendered = before[start:end]
            if _has_system_content(message):
                rendered = render(message, conversation_has_function_tools=True)
            self._add(message, rendered)


def _has_system_content(message: Message) -> bool:
    return any(isinstance(part, SystemContent) for part in message.content)
