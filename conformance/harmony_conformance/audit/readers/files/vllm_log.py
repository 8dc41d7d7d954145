"""The text log of vLLM with `--enable-log-requests --enable-log-outputs`.

Source: `RequestLogger` of vLLM 0.10 to 0.33, its main branch of 2026-11, and its callers. Newer ones log prompts, token ids and JSON bodies at the level
DEBUG alone.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace

from harmony_conformance.audit.readers.files.container import Container, Records, one_file, problem
from harmony_conformance.audit.readers.files.disk_index import DiskIndex
from harmony_conformance.audit.readers.files.sources import PeekableStream
from harmony_conformance.evidence.file_lines import LINE_LIMIT, Line, UnreadableLine, split_lines
from harmony_conformance.json_value import InvalidJsonError, loads

_HEAD = re.compile(rb"Received request [\w-]+: (?:params|prompt): |Generated response [\w-]+")
_JSON = (b"{", b"[")
_MESSAGE = re.compile(r"(?:Received request|Request|Generated response) (?P<id>\S+?)(?:: | details: | \(| JSON )")
_DETAILS = re.compile(r"(?:Request \S+ details: |Received request \S+: )prompt: ")
_PROMPT_IDS = re.compile(r"prompt_token_ids: (?P<ids>None|\[[\d, ]*\])")
_SEVERAL_CHOICES = re.compile(r"params: SamplingParams\(n=(?!1\b)")
_OUTPUT = re.compile(
    r"Generated response \S+(?: \(streaming (?P<part>\w+)\))?: output: (?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"(?:, output_token_ids: (?P<ids>None|[\[(][\d, ]*[\])]))?, finish_reason: (?P<reason>\w+)"
)
_OUTPUT_IDS = re.compile(
    r"Generated response \S+(?: \(streaming (?P<part>\w+)\))? details: output_token_ids: (?P<ids>None|[\[(][\d, ]*[\])])"
)
_DELTA, _COMPLETE = "delta", "complete"
_DELTA_PARTS = re.compile(
    r"(?P<content>.*?)(?:(?:^| )\[reasoning: (?P<reasoning>.*?)\])?(?:(?:^| )\[tool_calls: .*\])?", re.DOTALL
)
_BODY = re.compile(r"Request \S+ JSON body: (?P<body>\{.*)", re.DOTALL)
_CHAT_ID, _RESPONSES_ID = "chatcmpl-", "resp_"
_UNREADABLE = "a response of vLLM's log that cannot be read"
_NO_DELTAS = (
    "a stream of vLLM's log without its deltas: its complete text is what the model generated, not what the client got"
)
_SEVERAL = "a stream of vLLM's log with several choices, whose deltas are mixed"
_RESPONSES = "a response of vLLM's Responses API: the logged text is what the model generated, not what the client got"
_UNANSWERED = "a request of vLLM's log without a response (log with --enable-log-outputs)"


class _Streams:
    """The deltas of streams that are not complete. State: their parts by request. The oldest stream is left out above the memory of a line."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[str, str]] | None] = {}
        self._size = 0

    def refuse(self, request: str) -> None:
        """Mark a request with several choices."""
        self._parts[request] = None

    def add(self, request: str, text: str) -> None:
        """Add the text of a delta line."""
        parts = self._parts.setdefault(request, [])
        found = _DELTA_PARTS.fullmatch(text)
        if parts is not None and found is not None:
            parts.append((found["content"], found["reasoning"] or ""))
            self._size += len(text)
        while self._size > LINE_LIMIT and len(self._parts) > 1:
            self._forget(next(iter(self._parts)))

    def pop(self, request: str) -> tuple[str, str] | str:
        """Return content and reasoning of a stream, or the reason why they are unknown."""
        if request in self._parts and self._parts[request] is None:
            return _SEVERAL
        parts = self._forget(request)
        if not parts:
            return _NO_DELTAS
        contents, thoughts = zip(*parts, strict=True)
        return "".join(contents), "".join(thoughts)

    def _forget(self, request: str) -> list[tuple[str, str]]:
        parts = self._parts.pop(request, None) or []
        self._size -= sum(len(content) + len(thought) for content, thought in parts)
        return parts


def _read_vllm_log(stream: PeekableStream) -> Records:  # noqa: PLR0912 - a branch for each kind of line
    """Yield the generated responses, joined with the prompts and token ids that the log has.

    A stream is joined from its deltas: its complete text has the names of channels, or the reasoning.
    """
    streams = _Streams()
    with DiskIndex() as prompts, DiskIndex() as outputs, DiskIndex() as bodies:
        for line in split_lines(stream):
            if isinstance(line, UnreadableLine):
                yield line
                continue
            text = line.data.decode("utf-8", "replace")
            message = _MESSAGE.search(text)  # the first: what follows may quote another one
            if message is None:
                continue
            start, request = message.start(), message["id"]
            if text.startswith("Received", start) and _SEVERAL_CHOICES.search(text, start):
                streams.refuse(request)
            details = _DETAILS.match(text, start)
            # searched for once: a prompt may quote the beginning of such a line many times
            if details and (prompt := _PROMPT_IDS.search(text, details.end())):
                waiting = {"ids": _ids(prompt["ids"]), "offset": line.offset}
                prompts.put(request, json.dumps(waiting).encode())
            elif body := _BODY.match(text, start):
                bodies.put(request, json.dumps(_read_body(body["body"])).encode())
            elif found := _OUTPUT_IDS.match(text, start):
                if found["part"] != _DELTA:
                    outputs.put(request, json.dumps(_ids(found["ids"])).encode())
            elif output := _OUTPUT.match(text, start):
                record = _read_output(line, request, output, streams)
                if isinstance(record, dict):
                    known = outputs.pop(request)
                    ids = json.loads(known) if known is not None else _ids(output["ids"])
                    waiting = json.loads(prompts.pop(request) or b'{"ids": []}')
                    asked = json.loads(bodies.pop(request.removeprefix(_CHAT_ID)) or b"null")
                    record = {
                        **record,
                        "request_body_of_vllm": asked,
                        "output_token_ids": ids,
                        "prompt_token_ids": waiting["ids"],
                    }
                    yield replace(line, data=json.dumps(record).encode())
                elif record is not None:
                    prompts.pop(request)
                    yield record
            elif text.startswith("Generated", start):
                yield UnreadableLine(offset=line.offset, number=line.number, kind=_UNREADABLE)
        for waiting in map(json.loads, prompts.values()):
            yield problem(_UNANSWERED, number=waiting["offset"])


def _read_output(
    line: Line, request: str, output: re.Match[str], streams: _Streams
) -> dict[str, object] | UnreadableLine | None:
    """Return the texts of a response, or the problem of one that cannot be judged. A delta is only collected."""
    try:
        text = str(ast.literal_eval(output["text"]))
    except (ValueError, SyntaxError):  # an escape that Python does not write
        return UnreadableLine(offset=line.offset, number=line.number, kind=_UNREADABLE)
    if output["part"] == _DELTA:
        streams.add(request, text)
        return None
    is_stream = output["part"] == _COMPLETE and request.startswith(_CHAT_ID)
    texts = streams.pop(request) if is_stream else (text, "")
    if request.startswith(_RESPONSES_ID):
        texts = _RESPONSES
    if isinstance(texts, str):
        return UnreadableLine(offset=line.offset, number=line.number, kind=texts)
    content, reasoning = texts
    return {"vllm_request": request, "output": content, "reasoning": reasoning, "finish_reason": output["reason"]}


def _read_body(body: str) -> object:
    """Return a logged request body, None if it is cut. Without `--max-log-len`, vLLM logs all but the last character."""
    for whole in (body.strip(), f"{body.strip()}}}"):
        try:
            return loads(whole)
        except InvalidJsonError:
            continue
    return None


def _ids(source: str | None) -> list[int]:
    return [int(one) for one in re.findall(r"\d{1,9}", source or "")]


VLLM_LOG = Container(
    name="vllm-log",
    title="vLLM's log with --enable-log-requests",
    matches=lambda head, _: not head.lstrip().startswith(_JSON) and _HEAD.search(head) is not None,
    read=one_file("vllm-log", _read_vllm_log),
)
