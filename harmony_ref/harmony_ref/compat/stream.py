"""The parser that reads one token at a time."""

from enum import Enum
from typing import TYPE_CHECKING, Final, Self

from harmony_ref import errors
from harmony_ref.compat.arguments import role_value, strictness, token_id
from harmony_ref.compat.errors import HarmonyError
from harmony_ref.compat.messages import Message, Role
from harmony_ref.compat.values import message_from_value
from harmony_ref.list_view import Snapshot
from harmony_ref.parsing.stream_machine import StreamMachine

if TYPE_CHECKING:
    from harmony_ref.compat.encoding import HarmonyEncoding


class StreamState(Enum):
    """State of the parser."""

    EXPECT_START = "ExpectStart"
    HEADER = "Header"
    CONTENT = "Content"


_ROLES: Final = {role.value: role for role in Role}
_STATES: Final = {state.value: state for state in StreamState}


class StreamableParser(StreamMachine):
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
            encoding: ignored; there is only one.
            role: the role at the end of the prompt, after its last `<|start|>`; None if `<|start|>` comes first.
            strict: False to read a first message that stops before its `<|message|>` as content.

        Raises:
            ValueError: the role is of another enumeration.
            TypeError: `strict` is not a boolean.
        """
        super().__init__(None if role is None else role_value(role), strict=strictness(strict))

    def process(self, token: int) -> Self:
        """Read one token.

        Raises:
            HarmonyError: the token is not allowed at this position. The parser can read further tokens.
            TypeError: the token is not an integer.
            OverflowError: the token is negative or has more than 32 bits.
        """
        # The fast path of the machine, inlined: a call would take as long as its body.
        try:
            text = self._known[token] if type(token) is int else ""
        except KeyError:
            text = self._plain[token]
        if text:
            self._tokens.append(token)
            self.last_content_delta = text
            return self
        try:
            self._step(token_id(token))
        except errors.HarmonyError as error:
            raise HarmonyError(str(error)) from error
        return self

    def process_eos(self) -> Self:
        """Read the end of the input, which ends an open message.

        Raises:
            HarmonyError: the input ended inside a header.
        """
        try:
            self._read_end()
        except errors.HarmonyError as error:
            raise HarmonyError(str(error)) from error
        return self

    @property
    def current_role(self) -> Role | None:
        """The role of the open message, or the role from the prompt."""
        role = self._known_role()
        return None if role is None else _ROLES[role.value]

    @property
    def messages(self) -> list[Message]:
        """The finished messages: a new list of new messages; changing them does not affect the parser."""
        return [message_from_value(message) for message in self._messages]

    @property
    def tokens(self) -> list[int]:
        """Every id that was read, including refused ones: a new list."""
        return self._tokens.copy()

    @property
    def state_data(self) -> dict[str, object]:
        """The state and its data, in new lists; see `harmony_ref.StreamParser.state_data`."""
        state = self._describe_state().items()
        return {name: list(value) if isinstance(value, Snapshot) else value for name, value in state}

    @property
    def state(self) -> StreamState:
        """State of the parser, in constant time."""
        return _STATES[self._state.value]
