"""The parser that takes one token at a time."""

from enum import Enum
from typing import TYPE_CHECKING, Final, Self

from harmony_ref import errors
from harmony_ref.compat.arguments import LARGEST_ID, role_value, strictness, token_id
from harmony_ref.compat.errors import HarmonyError
from harmony_ref.compat.messages import Message, Role
from harmony_ref.compat.values import message_from_value
from harmony_ref.parser import StreamParser

if TYPE_CHECKING:
    from harmony_ref.compat.encoding import HarmonyEncoding


class StreamState(Enum):
    """Where the parser stands."""

    EXPECT_START = "ExpectStart"
    HEADER = "Header"
    CONTENT = "Content"


_ROLES: Final = {role.value: role for role in Role}
_STATES: Final = {state.value: state for state in StreamState}


class StreamableParser:
    """Reads the tokens of a completion one by one."""

    def __init__(
        self,
        encoding: "HarmonyEncoding",  # noqa: ARG002 - there is only one
        role: Role | None,
        *,
        strict: bool = True,
    ) -> None:
        """Start before the first token.

        Args:
            encoding: the encoding; there is only one.
            role: the role that stood in the prompt after the last `<|start|>`; None when `<|start|>` comes first.
            strict: False to take a first message that stops before its `<|message|>` as content.

        Raises:
            ValueError: the role is of another enumeration.
            TypeError: `strict` is no boolean.
        """
        known = None if role is None else role_value(role)
        self._parser = StreamParser(known, strict=strictness(strict))

    def process(self, token: int) -> Self:
        """Read one token.

        Raises:
            HarmonyError: it cannot stand where it does. The parser can be fed further.
            TypeError: it is no integer.
            OverflowError: it is negative or has more than 32 bits.
        """
        if type(token) is not int or not 0 <= token <= LARGEST_ID:
            token = token_id(token)
        try:
            self._parser.process(token)
        except errors.HarmonyError as error:
            raise HarmonyError(str(error)) from error
        return self

    def process_eos(self) -> Self:
        """Read the end of the input, which ends a message that is still open.

        Raises:
            HarmonyError: the input ended inside a header.
        """
        try:
            self._parser.finish()
        except errors.HarmonyError as error:
            raise HarmonyError(str(error)) from error
        return self

    @property
    def current_content(self) -> str:
        """The text of the open message so far, whole characters only."""
        return self._parser.current_content

    @property
    def current_role(self) -> Role | None:
        """The role of the open message, or the one known beforehand."""
        role = self._parser.current_role
        return None if role is None else _ROLES[role.value]

    @property
    def current_content_type(self) -> str | None:
        """The content type of the open message, once its header is complete."""
        return self._parser.current_content_type

    @property
    def last_content_delta(self) -> str | None:
        """The text that the last token completed, if any."""
        return self._parser.last_content_delta

    @property
    def messages(self) -> list[Message]:
        """The finished messages: a new list of new messages, which may be changed without an effect on the parser."""
        return [message_from_value(message) for message in self._parser.messages]

    @property
    def tokens(self) -> list[int]:
        """Every id that was read, a refused one included: a new list."""
        return list(self._parser.tokens)

    @property
    def state_data(self) -> dict[str, object]:
        """The state and what it holds; see `harmony_ref.StreamParser.state_data`. Takes time in proportion to it."""
        return dict(self._parser.state_data)

    @property
    def state(self) -> StreamState:
        """Where the parser stands; takes the same time however much was read."""
        return _STATES[self._parser.state.value]

    @property
    def current_recipient(self) -> str | None:
        """The recipient of the open message, once its header is complete."""
        return self._parser.current_recipient

    @property
    def current_channel(self) -> str | None:
        """The channel of the open message, once its header is complete."""
        return self._parser.current_channel
