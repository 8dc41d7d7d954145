"""The parser that takes one token at a time."""

from enum import Enum
from typing import TYPE_CHECKING, Final, Self

from harmony_ref import errors
from harmony_ref.compat.arguments import role_value, strictness, token_id
from harmony_ref.compat.errors import HarmonyError
from harmony_ref.compat.messages import Message, Role
from harmony_ref.compat.values import message_from_value
from harmony_ref.parsing.stream_machine import StreamMachine
from harmony_ref.snapshot import Snapshot

if TYPE_CHECKING:
    from harmony_ref.compat.encoding import HarmonyEncoding


class StreamState(Enum):
    """Where the parser stands."""

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
            encoding: the encoding; there is only one.
            role: the role that stood in the prompt after the last `<|start|>`; None when `<|start|>` comes first.
            strict: False to take a first message that stops before its `<|message|>` as content.

        Raises:
            ValueError: the role is of another enumeration.
            TypeError: `strict` is no boolean.
        """
        super().__init__(None if role is None else role_value(role), strict=strictness(strict))

    def process(self, token: int) -> Self:
        """Read one token.

        Raises:
            HarmonyError: it cannot stand where it does. The parser can be fed further.
            TypeError: it is no integer.
            OverflowError: it is negative or has more than 32 bits.
        """
        # The short cut of the machine stands here and not in a method: calling it would take as long as doing it.
        try:
            text = self._known[token] if type(token) is int else ""
        except KeyError:
            text = self._plain[token]
        if text:
            self._tokens.append(token)
            self._delta = text
            return self
        try:
            self._step(token_id(token))
        except errors.HarmonyError as error:
            raise HarmonyError(str(error)) from error
        return self

    def process_eos(self) -> Self:
        """Read the end of the input, which ends a message that is still open.

        Raises:
            HarmonyError: the input ended inside a header.
        """
        try:
            self._end()
        except errors.HarmonyError as error:
            raise HarmonyError(str(error)) from error
        return self

    @property
    def current_role(self) -> Role | None:
        """The role of the open message, or the one known beforehand."""
        role = self._known_role()
        return None if role is None else _ROLES[role.value]

    @property
    def messages(self) -> list[Message]:
        """The finished messages: a new list of new messages, which may be changed without an effect on the parser."""
        return [message_from_value(message) for message in self._messages]

    @property
    def tokens(self) -> list[int]:
        """Every id that was read, a refused one included: a new list."""
        return self._tokens.copy()

    @property
    def state_data(self) -> dict[str, object]:
        """The state and what it holds, in new lists; see `harmony_ref.StreamParser.state_data`."""
        return {
            name: list(value) if isinstance(value, Snapshot) else value for name, value in self._described().items()
        }

    @property
    def state(self) -> StreamState:
        """Where the parser stands; takes the same time however much was read."""
        return _STATES[self._state.value]
