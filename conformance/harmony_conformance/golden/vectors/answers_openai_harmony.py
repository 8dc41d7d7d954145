"""Answers of the official library, openai-harmony 0.0.8, through its bindings, which take and return JSON.

The library and its vocabulary are loaded on first use. The vocabulary comes from `harmony_ref`: nothing is downloaded.
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

from harmony_conformance.golden.vectors import input_reader
from harmony_conformance.golden.vectors.implementation import (
    Implementation,
    UnavailableImplementation,
    error_answer,
    stream_answer,
)
from harmony_conformance.json_value import Json, JsonObject, items, loads, members
from harmony_ref.tokenizer import vocabulary

NAME: Final = "openai-harmony"
VERSION: Final = "0.0.8"

_PLACE: Final = re.compile(r" at line \d+ column \d+$")
_FOLDER_OF_VOCABULARIES: Final = "TIKTOKEN_ENCODINGS_BASE"
_TYPE: Final = ("type f = (_: ", ") => any;\n\n} // namespace n<|end|>")
"""Text before and after the type of the only tool of the namespace `n`."""


class _Encoding(Protocol):
    """The methods in use of the library's `PyHarmonyEncoding`."""

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
def implementation() -> Implementation | UnavailableImplementation:
    """Return the library as an implementation, or the reason why it cannot take part."""
    try:
        installed = version(NAME)
    except PackageNotFoundError:
        return UnavailableImplementation(name=NAME, reason="not installed")
    if installed != VERSION:
        reason = f"{installed} is installed, the vectors are those of {VERSION}"
        return UnavailableImplementation(name=NAME, reason=reason)
    # The bindings are used directly because the library's Python classes lose members.
    names = vars(importlib.import_module("openai_harmony"))
    load: Callable[[str], _Encoding] = names["_load_harmony_encoding"]
    with _packaged_vocabulary():
        official = _Official(load("HarmonyGptOss"), names["_PyStreamableParser"])
    return Implementation(
        name=NAME,
        version=installed,
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

    def render(self, vector_input: JsonObject) -> JsonObject:
        parsed = input_reader.read_render(vector_input)
        try:
            ids = self._render(parsed)
        except (ValueError, RuntimeError) as problem:
            return _error(problem)
        return {"text": self._encoding.decode_utf8(ids), "tokens": [*ids]}

    def parse(self, vector_input: JsonObject) -> JsonObject:
        parsed = input_reader.read_parse(vector_input)
        role = None if parsed.role is None else parsed.role.value
        try:
            messages = self._encoding.parse_messages_from_completion_tokens([*parsed.tokens], role, parsed.strict)
        except RuntimeError as problem:
            # only the stream parser reports the position and the messages before the error
            parser = self._new_parser(self._encoding, role, parsed.strict)
            steps = enumerate([*parsed.tokens, None])
            position = next(index for index, token in steps if _run_step(parser, token) is not None)
            first: JsonObject = {"kind": "parse", "text": str(problem), "position": position}
            return {"error": first, "messages": loads(parser.messages)}
        return {"messages": loads(messages)}

    def stream(self, vector_input: JsonObject) -> JsonObject:
        parsed = input_reader.read_stream(vector_input)
        role = None if parsed.role is None else parsed.role.value
        parser = self._new_parser(self._encoding, role, parsed.strict)

        def observe(position: int, problem: str | None) -> JsonObject:
            values: JsonObject = {name: _ATTRIBUTES[name](parser) for name in parsed.observe}
            if problem is not None:
                values["error"] = {"kind": "parse", "text": problem, "position": position}
            return values

        before = observe(0, None)
        steps = [observe(position, _run_step(parser, token)) for position, token in enumerate(parsed.tokens)]
        return stream_answer(before, steps, observe(len(steps), _run_step(parser, None)), loads(parser.messages))

    def typescript(self, vector_input: JsonObject) -> JsonObject:
        tool: JsonObject = {"name": "f", "description": "", "parameters": input_reader.read_schema(vector_input)}
        tools: JsonObject = {"n": {"name": "n", "tools": [tool]}}
        message = {"role": "developer", "content": [{"type": "developer_content", "tools": tools}]}
        try:
            prompt = self._encoding.decode_utf8(self._encoding.render(json.dumps(message), {}))
        except (ValueError, RuntimeError) as problem:
            return _error(problem)
        before, after = _TYPE
        return {"typescript": prompt[prompt.index(before) + len(before) : prompt.rindex(after)]}

    def _render(self, parsed: input_reader.RenderInput) -> list[int]:
        messages = parsed.messages if parsed.spelled_out is None else parsed.spelled_out
        if parsed.mode is input_reader.Mode.MESSAGE:
            options = {"conversation_has_function_tools": parsed.conversation_has_function_tools}
            return self._encoding.render(json.dumps(messages[0]), options)
        conversation = json.dumps({"messages": messages})
        config = {"auto_drop_analysis": parsed.auto_drop_analysis}
        if parsed.mode is input_reader.Mode.COMPLETION:
            return self._encoding.render_conversation_for_completion(conversation, parsed.next_role.value, config)
        if parsed.mode is input_reader.Mode.TRAINING:
            return self._encoding.render_conversation_for_training(conversation, config)
        return self._encoding.render_conversation(conversation, config)


def _run_step(parser: _Parser, token: int | None) -> str | None:
    """Feed a token, or the end of the input (None). Return the text of the error, if there is one."""
    try:
        if token is None:
            parser.process_eos()
        else:
            parser.process(token)
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
"""Parser attributes by the names in `inputs.OBSERVABLE`."""


def _error(problem: Exception) -> JsonObject:
    if isinstance(problem, ValueError):  # an invalid message; its position refers to JSON text that the vector lacks
        return error_answer("message", _PLACE.sub("", str(problem)))
    return error_answer("render", str(problem))


@contextmanager
def _packaged_vocabulary() -> Generator[None]:
    """Make the library read the packaged vocabulary, unless the environment already names a folder."""
    if _FOLDER_OF_VOCABULARIES in os.environ:
        yield
        return
    with TemporaryDirectory() as folder:
        (Path(folder) / "o200k_base.tiktoken").write_bytes(vocabulary.read_vocabulary_file())
        os.environ[_FOLDER_OF_VOCABULARIES] = folder
        try:
            yield
        finally:
            del os.environ[_FOLDER_OF_VOCABULARIES]
