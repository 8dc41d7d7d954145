"""The answers of the official library, openai-harmony 0.0.8, through its bindings, which take and return JSON.

It is imported and its vocabulary is loaded on first use. The vocabulary comes from `harmony_ref`, so nothing is downloaded.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from harmony_conformance.golden.vectors.implementation import Absent, Implementation, error
from harmony_conformance.golden.vectors.inputs import (
    Mode,
    RenderInput,
    read_parse,
    read_render,
    read_schema,
    read_stream,
)
from harmony_conformance.json_value import Json, JsonObject, items, loads, members
from harmony_ref.tokenizer import vocabulary

NAME: Final = "openai-harmony"
VERSION: Final = "0.0.8"

_PLACE: Final = re.compile(r" at line \d+ column \d+$")
_FOLDER_OF_VOCABULARIES: Final = "TIKTOKEN_ENCODINGS_BASE"
_TYPE: Final = ("type f = (_: ", ") => any;\n\n} // namespace n<|end|>")
"""What stands before and after the type of the only tool of the namespace `n`."""


class _Encoding(Protocol):
    """The library's `PyHarmonyEncoding`, as far as it is used."""

    def render(self, message: str, options: dict[str, bool]) -> list[int]: ...
    def render_conversation(self, conversation: str, config: dict[str, bool]) -> list[int]: ...
    def render_conversation_for_training(self, conversation: str, config: dict[str, bool]) -> list[int]: ...
    def render_conversation_for_completion(
        self, conversation: str, next_role: str, config: dict[str, bool]
    ) -> list[int]: ...
    def parse_messages_from_completion_tokens(self, tokens: list[int], role: str | None, strict: bool) -> str: ...
    def decode_utf8(self, tokens: list[int]) -> str: ...


class _Parser(Protocol):
    """The library's `PyStreamableParser`."""

    state: str
    messages: str
    current_role: str | None
    current_channel: str | None
    current_recipient: str | None
    current_content_type: str | None
    current_content: str
    last_content_delta: str | None

    def process(self, token: int) -> object: ...
    def process_eos(self) -> object: ...


@cache
def implementation() -> Implementation | Absent:
    """The library, or why it can not take part."""
    try:
        found = version(NAME)
    except PackageNotFoundError:
        return Absent(name=NAME, reason="not installed")
    if found != VERSION:
        return Absent(name=NAME, reason=f"{found} is installed, the vectors are those of {VERSION}")
    # The Python classes around the bindings are left out: they lose members on the way.
    names = vars(importlib.import_module("openai_harmony"))
    load: Callable[[str], _Encoding] = names["_load_harmony_encoding"]
    with _packaged_vocabulary():
        official = _Official(load("HarmonyGptOss"), names["_PyStreamableParser"])
    return Implementation(
        name=NAME,
        version=found,
        answers={
            "render": official.render,
            "parse": official.parse,
            "stream": official.stream,
            "typescript": official.typescript,
        },
    )


class _Official:
    def __init__(self, encoding: _Encoding, new_parser: Callable[[_Encoding, str | None, bool], _Parser]) -> None:
        self._encoding = encoding
        self._new_parser = new_parser

    def render(self, given: JsonObject) -> JsonObject:
        asked = read_render(given)
        try:
            rendered = self._rendered(asked)
        except (ValueError, RuntimeError) as problem:
            return _refused(problem)
        return {"text": self._encoding.decode_utf8(rendered), "tokens": [*rendered]}

    def parse(self, given: JsonObject) -> JsonObject:
        asked = read_parse(given)
        role = None if asked.role is None else asked.role.value
        parser = self._parser(role, strict=asked.strict)
        try:
            whole = self._encoding.parse_messages_from_completion_tokens([*asked.tokens], role, asked.strict)
        except RuntimeError as problem:
            # Only its stream parser tells where, and what was finished before.
            steps = [*(_Step(parser, token) for token in asked.tokens), _Step(parser, None)]
            position = next(index for index, step in enumerate(steps) if step.refusal() is not None)
            return {
                "error": {"kind": "parse", "text": str(problem), "position": position},
                "messages": loads(parser.messages),
            }
        return {"messages": loads(whole)}

    def stream(self, given: JsonObject) -> JsonObject:
        asked = read_stream(given)
        parser = self._parser(None if asked.role is None else asked.role.value, strict=asked.strict)

        def seen(position: int, step: _Step | None) -> JsonObject:
            refusal = None if step is None else step.refusal()
            observed: JsonObject = {name: _ATTRIBUTES[name](parser) for name in asked.observe}
            if refusal is not None:
                observed["error"] = {"kind": "parse", "text": refusal, "position": position}
            return observed

        before = seen(0, None)
        steps = [seen(position, _Step(parser, token)) for position, token in enumerate(asked.tokens)]
        end = seen(len(steps), _Step(parser, None))
        first = next((step["error"] for step in [*steps, end] if "error" in step), None)
        trace: JsonObject = {"before": before, "steps": [*steps], "end": end, "messages": loads(parser.messages)}
        return trace if first is None else {"error": first, **trace}

    def typescript(self, given: JsonObject) -> JsonObject:
        tool: JsonObject = {"name": "f", "description": "", "parameters": read_schema(given)}
        tools: JsonObject = {"n": {"name": "n", "tools": [tool]}}
        message = {"role": "developer", "content": [{"type": "developer_content", "tools": tools}]}
        try:
            shown = self._encoding.decode_utf8(self._encoding.render(json.dumps(message), {}))
        except (ValueError, RuntimeError) as problem:
            return _refused(problem)
        before, after = _TYPE
        return {"typescript": shown[shown.index(before) + len(before) : shown.rindex(after)]}

    def _rendered(self, asked: RenderInput) -> list[int]:
        messages = asked.messages if asked.spelled_out is None else asked.spelled_out
        if asked.mode is Mode.MESSAGE:
            options = {"conversation_has_function_tools": asked.conversation_has_function_tools}
            return self._encoding.render(json.dumps(messages[0]), options)
        conversation = json.dumps({"messages": messages})
        config = {"auto_drop_analysis": asked.auto_drop_analysis}
        if asked.mode is Mode.COMPLETION:
            return self._encoding.render_conversation_for_completion(conversation, asked.next_role.value, config)
        if asked.mode is Mode.TRAINING:
            return self._encoding.render_conversation_for_training(conversation, config)
        return self._encoding.render_conversation(conversation, config)

    def _parser(self, role: str | None, *, strict: bool) -> _Parser:
        return self._new_parser(self._encoding, role, strict)


class _Step:
    """One token, or the end of the input (None), for a parser that has not read it yet."""

    def __init__(self, parser: _Parser, token: int | None) -> None:
        self._parser = parser
        self._token = token

    def refusal(self) -> str | None:
        """Read it; the text of the error, if it is refused."""
        try:
            if self._token is None:
                self._parser.process_eos()
            else:
                self._parser.process(self._token)
        except RuntimeError as problem:
            return str(problem)
        return None


def _state(parser: _Parser) -> JsonObject:
    return members(loads(parser.state))


_ATTRIBUTES: Final[dict[str, Callable[[_Parser], Json]]] = {
    "state": lambda parser: _state(parser)["state"],
    "role": lambda parser: parser.current_role,
    "channel": lambda parser: parser.current_channel,
    "recipient": lambda parser: parser.current_recipient,
    "content_type": lambda parser: parser.current_content_type,
    "delta": lambda parser: parser.last_content_delta,
    "content": lambda parser: parser.current_content,
    "finished": lambda parser: len(items(loads(parser.messages))),
    "data": _state,
}
"""By the names of `inputs.OBSERVABLE`."""


def _refused(problem: Exception) -> JsonObject:
    """Its ValueErrors speak of a shape, with a place in a text that the vector does not have; all others of what can not be rendered."""
    if isinstance(problem, ValueError):
        return error("message", _PLACE.sub("", str(problem)))
    return error("render", str(problem))


@contextmanager
def _packaged_vocabulary() -> Generator[None]:
    """Have the library read the packaged vocabulary, unless a folder is set already."""
    if _FOLDER_OF_VOCABULARIES in os.environ:
        yield
        return
    with TemporaryDirectory() as folder:
        (Path(folder) / "o200k_base.tiktoken").write_bytes(vocabulary.unpacked())
        os.environ[_FOLDER_OF_VOCABULARIES] = folder
        try:
            yield
        finally:
            del os.environ[_FOLDER_OF_VOCABULARIES]
