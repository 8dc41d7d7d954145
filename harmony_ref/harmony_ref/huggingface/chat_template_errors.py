"""The errors of `harmony_ref.huggingface.chat_template`; the tree is drawn there."""

from harmony_ref.errors import HarmonyError


class ChatTemplateError(HarmonyError):
    """A chat template that cannot be rendered.

    Attributes:
        line: the line of the template, from 1; None where the fault is in no line of it.
    """

    def __init__(self, text: str, *, line: int | None = None) -> None:
        super().__init__(text if line is None else f"line {line}: {text}")
        self.line = line


class ChatTemplateSyntaxError(ChatTemplateError):
    """The template is not Jinja.

    Attributes:
        problem: what Jinja says of it, without the line.
    """

    def __init__(self, problem: str, *, line: int) -> None:
        super().__init__(problem, line=line)
        self.problem = problem


class ChatTemplateUndefinedError(ChatTemplateError):
    """The template takes an attribute or item of something that is not there, or calls it.

    Attributes:
        problem: what Jinja says of it, without the line.
    """

    def __init__(self, problem: str, *, line: int | None) -> None:
        super().__init__(problem, line=line)
        self.problem = problem


class ChatTemplateRaisedError(ChatTemplateError):
    """The template called `raise_exception`.

    Attributes:
        message: what it was called with.
    """

    def __init__(self, message: str, *, line: int | None) -> None:
        super().__init__(message, line=line)
        self.message = message


class ChatTemplateSecurityError(ChatTemplateError):
    """The sandbox refused what the template does."""


class ChatTemplateFailedError(ChatTemplateError):
    """Any other exception of the template's own code.

    Attributes:
        exception: the name of its class.
    """

    def __init__(self, text: str, *, exception: str, line: int | None) -> None:
        super().__init__(f"{exception}: {text}", line=line)
        self.exception = exception


class ChatTemplateInputError(ChatTemplateError):
    """Messages, tools, documents or variables that no template is given.

    Attributes:
        pointer: JSON pointer to the fault, such as `/messages/0`.
        expected: what would have been right.
    """

    def __init__(self, text: str, *, pointer: str, expected: str) -> None:
        super().__init__(f"{pointer}: {text}; expected {expected}")
        self.pointer = pointer
        self.expected = expected
