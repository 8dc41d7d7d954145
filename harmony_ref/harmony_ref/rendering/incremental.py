"""A conversation that gets longer, and its tokens: a new message costs what it costs to render that message.

What may change in the tokens that are there already is no more than this, and neither needs the rest encoded again:

- a `final` of the assistant takes out the reasoning before the first `final`, and the assistant's next message puts it
  back unless it is a `final` too (`render.without_dropped_analysis`);
- the first function that a developer message declares adds a sentence to each system message.
"""

from collections.abc import Iterable, Sequence

from harmony_ref.errors import MessageError
from harmony_ref.messages.header import encode_field
from harmony_ref.messages.message_types import Message, Role, SystemContent
from harmony_ref.rendering.render import ANALYSIS, FINAL, has_function_tools, render
from harmony_ref.snapshot import Snapshot
from harmony_ref.tokenizer import tokens


class GrowingConversation:
    """Messages and their tokens; the latter are always those of `render_conversation(messages)`.

    A message that cannot be rendered is refused, and not part of it.
    """

    __slots__ = (
        "_auto_drop_analysis",
        "_ends",
        "_final_seen",
        "_messages",
        "_note",
        "_says_final",
        "_shortened",
        "_whole",
    )

    def __init__(self, messages: Iterable[Message] = (), *, auto_drop_analysis: bool = True) -> None:
        """Begin with these messages; for `auto_drop_analysis` see `render_conversation`."""
        self._auto_drop_analysis = auto_drop_analysis
        self._messages: list[Message] = []
        self._note = False
        # Whether any message was on `final`, and whether the assistant's last was.
        self._final_seen = False
        self._says_final = False
        # The tokens of all messages, those without the reasoning before the first final, and where each message ends
        # in the former. Both are kept, because a tool call after a final answer turns from one to the other and back.
        self._whole: list[int] = []
        self._shortened: list[int] = []
        self._ends: list[int] = []
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> Sequence[int]:
        """Add a message at the end.

        Returns:
            The ids of that message.

        Raises:
            RenderError: a message that Harmony has no form for.
            MessageError: a string or number that JSON cannot carry.
        """
        note = self._note or has_function_tools([message])
        try:
            rendered = render(message, conversation_has_function_tools=note)
        except MessageError as error:
            raise MessageError(subject="conversation", problem=error.problem) from None
        if note and not self._note:
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
        return Snapshot(self._kept)

    def for_completion(self, next_turn_role: Role = Role.ASSISTANT) -> list[int]:
        """The ids of a prompt, as of `render_conversation_for_completion`; copied, not rendered again."""
        return [*self._kept, tokens.START, *encode_field(next_turn_role.value)]

    def for_training(self) -> list[int]:
        """The ids of a training example, as of `render_conversation_for_training`; copied, not rendered again."""
        rendered = self._kept.copy()
        if self._messages and _is_final_answer(self._messages[-1]):
            rendered[-1] = tokens.RETURN
        return rendered

    @property
    def _kept(self) -> list[int]:
        return self._shortened if self._auto_drop_analysis and self._says_final else self._whole

    def _add(self, message: Message, rendered: Sequence[int]) -> None:
        if message.channel == FINAL:
            self._final_seen = True
        if message.author.role is Role.ASSISTANT:
            self._says_final = message.channel == FINAL
        self._messages.append(message)
        self._whole += rendered
        self._ends.append(len(self._whole))
        if self._final_seen or message.channel != ANALYSIS:
            self._shortened += rendered

    def _add_note(self) -> None:
        """Render the system messages once more, now with the note, and put everything together anew."""
        self._note = True
        if not any(_has_system_content(message) for message in self._messages):
            return
        before, starts, messages = self._whole, [0, *self._ends], self._messages
        # New lists: snapshots of the old ones stay as they are.
        self._whole, self._shortened, self._ends, self._messages = [], [], [], []
        self._final_seen = False
        for message, start, end in zip(messages, starts, starts[1:], strict=False):
            noted = _has_system_content(message)
            self._add(message, render(message, conversation_has_function_tools=True) if noted else before[start:end])


def _has_system_content(message: Message) -> bool:
    return any(isinstance(part, SystemContent) for part in message.content)


def _is_final_answer(message: Message) -> bool:
    return message.author.role is Role.ASSISTANT and message.channel == FINAL
