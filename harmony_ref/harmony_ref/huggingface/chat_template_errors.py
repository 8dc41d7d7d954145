"""The errors of `harmony_ref.huggingface.chat_template`, which shows their hierarchy."""

from harmony_ref.errors import HarmonyError


class ChatTemplateError(HarmonyError):
    """A chat template that cannot be rendered; `line` is the line of the template, from 1, if the error has one."""

    def __init__(self, text: str, *, line: int | None = None) -> None:
        super().__init__(text if line is None else f"line {line}: {text}")
        self.line = line


class ChatTemplateSyntaxError(ChatTemplateError):
    """The template is not valid Jinja; `problem` is Jinja's message without the line."""

    def __init__(self, problem: str, *, line: int) -> None:
        super().__init__(problem, line=line)
        self.problem = problem


class ChatTemplateUndefinedError(ChatTemplateError):
    """The template uses an attribute or item of an undefined value, or calls it; `problem` is Jinja's message."""

    def __init__(self, problem: str, *, line: int | None) -> None:
        super().__init__(problem, line=line)
        self.problem = problem


class ChatTemplateRaisedError(ChatTemplateError):
    """The template called `raise_exception` with `message`."""

    def __init__(self, message: str, *, line: int | None) -> None:
        super().__init__(message, line=line)
        self.message = message


class ChatTemplateSecurityError(ChatTemplateError):
    """The sandbox refused an operation of the template."""


class ChatTemplateFailedError(ChatTemplateError):
    """Any other exception in the template's code; `exception` is the name of its class."""

    def __init__(self, text: str, *, exception: str, line: int | None) -> None:
        super().__init__(f"{exception}: {text}", line=line)
        self.exception = exception


class ChatTemplateInputError(ChatTemplateError):
    """Invalid messages, tools, documents or variables.

    `pointer` is a JSON pointer such as `/messages/0`, `expected` a phrase for a valid value.
    """

    def __init__(self, text: str, *, pointer: str, expected: str) -> None:
        super().__init__(f"{pointer}: {text}; expected {expected}")
        self.pointer = pointer
        self.expected = expected
