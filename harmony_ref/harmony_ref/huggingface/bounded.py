"""Templates and response schemas of other people, evaluated in a separate process with limits of time and memory.

    rendered = render_bounded(template, messages, limits=EvaluationLimits(seconds=2))
    message = parse_bounded(response, schema)

A template is a program, a pattern of `re` can take exponential time, and a JMESPath expression can multiply its input.
None of them can be stopped inside a process. The arguments, results and errors are those of `render_chat_template` and
`parse_response`, but texts of errors are cut to `LARGEST_ERROR_TEXT` characters. A value of an argument must be
picklable. A call starts a process, which takes about 0.2 seconds.

    EvaluationLimitError    (a HarmonyError) the evaluation needed more time, memory, output or levels than its limits
"""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from harmony_ref.errors import HarmonyError
from harmony_ref.huggingface import chat_template, chat_template_errors, response_schema, response_schema_errors
from harmony_ref.huggingface.chat_template import RenderedChat
from harmony_ref.huggingface.response_schema import SchemaProblem
from harmony_ref.json_value import Json

_Call: TypeAlias = "tuple[str, tuple[object, ...], dict[str, object], EvaluationLimits]"


LARGEST_ERROR_TEXT: Final = 10_000
"""Maximum characters of the text of an error and of each of its attributes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationLimits:
    """EvaluationLimits of one evaluation.

    Attributes:
        seconds: time, including the start of the process.
        memory: bytes of address space, on systems with `RLIMIT_AS`; the interpreter needs about 100 MB of it.
        characters: of the result as JSON.
    """

    seconds: float = 10.0
    memory: int = 1 << 29
    characters: int = 1 << 24


DEFAULT_LIMITS: Final = EvaluationLimits()


class EvaluationLimitError(HarmonyError):
    """The evaluation needed more than its limits.

    `limit` is the name of a field of `EvaluationLimits`, or "levels" if Python cannot pass values of that depth.
    """

    def __init__(self, limit: str, value: float | None = None) -> None:
        expected = "values of fewer levels, got deeper ones"
        if value is not None:
            expected = f"an evaluation within {value:g} {limit}, got a longer one"
        super().__init__(f"invalid template or schema: expected {expected}")
        self.limit = limit


def render_bounded(
    template: str,
    messages: Sequence[Mapping[str, Json]],
    *,
    limits: EvaluationLimits = DEFAULT_LIMITS,
    **options: object,
) -> RenderedChat:
    """Return `render_chat_template(template, messages, **options)`.

    Raises:
        ChatTemplateError: one of its subclasses.
        EvaluationLimitError: the rendering needed more than its limits.
    """
    rendered = cast("dict[str, object]", _evaluate(("render", (template, messages), options, limits)))
    spans = cast("list[tuple[int, int]]", rendered["generation_spans"])
    return RenderedChat(text=str(rendered["text"]), generation_spans=tuple((start, end) for start, end in spans))


def parse_bounded(response: str, schema: Mapping[str, Json], *, limits: EvaluationLimits = DEFAULT_LIMITS) -> Json:
    """Return `parse_response(response, schema)`.

    Raises:
        ResponseSchemaError: one of its subclasses.
        EvaluationLimitError: the evaluation needed more than its limits.
    """
    return cast("Json", _evaluate(("parse", (response, schema), {}, limits)))


def _evaluate(call: _Call) -> object:
    limits = call[-1]
    try:
        answered = json.loads(_run(pickle.dumps(call), limits))
    except RecursionError:
        raise EvaluationLimitError("levels") from None
    if "result" in answered:
        return answered["result"]
    if "limit" in answered:
        raise EvaluationLimitError(answered["limit"], getattr(limits, answered["limit"], None))
    if "type_error" in answered:
        raise TypeError(answered["type_error"])
    raise _error(answered["error"], answered["text"], answered["attributes"])


def _run(call: bytes, limits: EvaluationLimits) -> bytes:
    command = [sys.executable, "-P", "-c", f"from {__name__} import answer; answer()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: S603 - this interpreter
        try:
            output, _ = process.communicate(call, timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            raise EvaluationLimitError("seconds", limits.seconds) from None
        finally:
            process.kill()
    if not output:
        raise EvaluationLimitError("memory", limits.memory)
    return output


def _error(name: str, text: str, attributes: dict[str, object]) -> HarmonyError:
    """Return the error that the other process raised."""
    modules = (chat_template_errors, response_schema_errors)
    kind = next(getattr(module, name) for module in modules if hasattr(module, name))
    error = cast("HarmonyError", kind.__new__(kind, text))
    error.__dict__.update(attributes)
    if "problem" in attributes and issubclass(kind, response_schema_errors.ResponseSchemaError):
        error.__dict__["problem"] = SchemaProblem(str(attributes["problem"]))
    return error


def _render(*arguments: object, **options: object) -> dict[str, object]:
    rendered = cast("Callable[..., RenderedChat]", chat_template.render_chat_template)(*arguments, **options)
    return {"text": rendered.text, "generation_spans": rendered.generation_spans}


_FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "render": _render,
    "parse": cast("Callable[..., object]", response_schema.parse_response),
}


def answer() -> None:
    """Evaluate the call on stdin in this process, and write its result or error to stdout as one JSON object."""
    name, arguments, options, limits = cast("_Call", pickle.load(sys.stdin.buffer))  # noqa: S301 - from the parent
    _limit_memory(limits.memory)
    try:
        document = json.dumps({"result": _FUNCTIONS[name](*arguments, **options)})
        if len(document) > limits.characters:
            document = json.dumps({"limit": "characters"})
    except MemoryError:
        document = json.dumps({"limit": "memory"})
    except RecursionError:
        document = json.dumps({"limit": "levels"})
    except TypeError as error:  # an unknown option
        document = json.dumps({"type_error": _cut(str(error))})
    except HarmonyError as error:
        is_memory = isinstance(error, chat_template_errors.ChatTemplateFailedError) and error.exception == "MemoryError"
        document = json.dumps(
            {"limit": "memory"}
            if is_memory
            else {"error": type(error).__name__, "text": _cut(str(error)), "attributes": _cut_all(error.__dict__)}
        )
    sys.stdout.write(document)


def _cut_all(attributes: Mapping[str, object]) -> dict[str, object]:
    return {name: _cut(value) if isinstance(value, str) else value for name, value in attributes.items()}


def _cut(text: str) -> str:
    return text if len(text) <= LARGEST_ERROR_TEXT else text[: LARGEST_ERROR_TEXT - 1] + "…"


def _limit_memory(limit: int) -> None:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    with suppress(ValueError, OSError):  # some systems have the limit, and refuse to set it
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
