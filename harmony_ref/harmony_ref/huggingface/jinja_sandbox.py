"""The Jinja sandbox in which transformers renders chat templates.

The sandbox is immutable, trims the newline after a block tag and the blanks before it, and has:

    {% break %}, {% continue %}                 leave a loop, or one iteration
    {% generation %} … {% endgeneration %}      output of the assistant; its position is recorded
    value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)    without HTML escapes
    raise_exception(message)                    aborts the rendering
    strftime_now(format)                        the date from the caller
    dict(…), dict.fromkeys(…), namespace(…)     without the attributes of Python's classes

Source: transformers 5.23.0, `utils/chat_template_utils.py`. The sandbox limits access, not time and output: for an
untrusted template use `harmony_ref.huggingface.bounded`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import CodeType, TracebackType
from typing import Final, NoReturn, Protocol

from harmony_ref.extras import install_command
from harmony_ref.huggingface.chat_template_errors import (
    ChatTemplateError,
    ChatTemplateFailedError,
    ChatTemplateInputError,
    ChatTemplateRaisedError,
    ChatTemplateSecurityError,
    ChatTemplateSyntaxError,
    ChatTemplateUndefinedError,
)

try:
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.parser
    import jinja2.sandbox
    import jinja2.utils
    from jinja2.exceptions import SecurityError
except ImportError as error:
    raise ImportError(
        f"chat templates need jinja2, which is not installed: {install_command('huggingface')}"
    ) from error

_COMPILED_TEMPLATES: Final = 64
_TEMPLATE_FILE: Final = "<template>"


class Moment(Protocol):
    """A `datetime.datetime`, `datetime.date`, or any object with their `strftime`."""

    def strftime(self, format: str, /) -> str:  # noqa: A002 - the name datetime gives it
        """Return the moment in this format."""
        ...


class Generations(jinja2.ext.Extension):
    """The tag `generation`, which records the positions of its blocks in the result.

    As in transformers, a block inside a macro, a captured block or another `generation` is recorded at the length of
    the result so far. Its text may appear later.

    Attributes:
        written: characters of the result so far; the consumer of the result counts them.
        spans: start and end, in characters, of each block.
    """

    tags: set[str] = {"generation"}  # noqa: RUF012 - as the base class declares it

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.written = 0
        self.spans: list[tuple[int, int]] = []

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """Parse one block; called by Jinja at each tag."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_record"), [], [], body).set_lineno(line)

    def _record(self, caller: Callable[[], str]) -> str:
        text = caller()
        self.spans.append((self.written, self.written + len(text)))
        return text


class _TemplateRaisedError(jinja2.TemplateError):
    """Raised by `raise_exception`, to distinguish it from Jinja's errors."""


class _Dict:
    """`dict` without the attributes that lead to Python's classes."""

    def __call__(self, *args: Iterable[tuple[str, object]], **kwargs: object) -> dict[str, object]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[object], value: object = None) -> dict[object, object]:
        """Return `dict.fromkeys`."""
        return dict.fromkeys(keys, value)


class _Namespace(jinja2.utils.Namespace):
    """Jinja's writable namespace, without names that begin with an underscore."""

    def __init__(self, /, *args: Iterable[tuple[str, object]], **kwargs: object) -> None:
        attributes: dict[str, object] = dict(*args, **kwargs)
        for name in attributes:
            _check_name(name)
        super().__init__(attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def render(source: str, variables: Mapping[str, object], *, now: Moment | None) -> tuple[str, list[tuple[int, int]]]:
    """Render a template, and return its text and the spans of its `generation` blocks.

    Args:
        source: the template.
        variables: its variables.
        now: the date for `strftime_now`; None to reject its use.

    Raises:
        ChatTemplateError: one of its subclasses.
    """
    try:
        return _render(source, variables, now)
    except ChatTemplateError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise ChatTemplateSyntaxError(str(error.message), line=error.lineno) from error
    except _TemplateRaisedError as error:
        raise ChatTemplateRaisedError(str(error), line=_line(error.__traceback__)) from error
    except SecurityError as error:
        raise ChatTemplateSecurityError(str(error), line=_line(error.__traceback__)) from error
    except jinja2.UndefinedError as error:
        raise ChatTemplateUndefinedError(str(error), line=_line(error.__traceback__)) from error
    except Exception as error:  # a template is a program and can raise anything
        name = type(error).__name__
        raise ChatTemplateFailedError(str(error), exception=name, line=_line(error.__traceback__)) from error


def _render(source: str, variables: Mapping[str, object], now: Moment | None) -> tuple[str, list[tuple[int, int]]]:
    def strftime_now(format: str) -> str:  # noqa: A002 - templates may name the argument
        if now is None:
            raise ChatTemplateInputError("strftime_now was called", pointer="/now", expected="a date")
        return now.strftime(format)

    names = {
        "raise_exception": _raise_exception,
        "strftime_now": strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    environment = _environment()
    template = jinja2.Template.from_code(environment, _compile(source), environment.make_globals(names))
    generations = environment.extensions[Generations.identifier]
    assert isinstance(generations, Generations)
    blocks: list[str] = []
    for block in template.generate(variables):
        blocks.append(block)
        generations.written += len(block)
    return "".join(blocks), generations.spans


def _environment() -> jinja2.Environment:
    """Return a new environment: its extension stores the spans of one rendering."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generations, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    return environment


@lru_cache(maxsize=_COMPILED_TEMPLATES)
def _compile(source: str) -> CodeType:
    return _environment().compile(source)


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateRaisedError(message)


def _tojson(
    x: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace may not hold {name!r}: its name begins with an underscore")


def _line(traceback: TracebackType | None) -> int | None:
    """Return the template's line of an error, which Jinja puts into the traceback."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _TEMPLATE_FILE:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
