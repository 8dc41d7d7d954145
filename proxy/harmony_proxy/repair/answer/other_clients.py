"""Leaks of a complete answer that only some clients show.

The checks read one value of a JSON document, as UTF-8. For blocking, these are read too:

- the other values of members that occur twice, or whose names differ from those of the API by case or underscores;
- a document in UTF-16 or UTF-32, or after a byte order mark, which many clients detect;
- members of other APIs, and of a choice outside of its message;
- the texts of JSON that has no answer: of an error, or of another API;
- events and lines of JSON under another content type, which some clients read nevertheless;
- a body that is no JSON, as one text, with and without the tags of HTML, and each of its strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.text_fields import FieldKind
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import share_request_views
from harmony_conformance.evidence.leaks.by_text import TEMPLATE_CODE
from harmony_conformance.json_value import InvalidJsonError, Json, dumps, strings, text
from harmony_conformance.transport.messages import Chunk
from harmony_proxy.repair.answer.check_verdicts import find_failures
from harmony_proxy.repair.answer.strict_leaks import LEAK_CHECKS, as_success, find_text_leaks
from harmony_proxy.repair.text.other_readings import JsonReadings, TooManyReadingsError, read_json
from harmony_proxy.repair.text.rare_texts import rare_texts_of_answer

_TAG = re.compile(r"</?[A-Za-z][^<>]{0,1000}>|<!--[^>]{0,1000}-->")
_EVENT = re.compile(r"(?:\A|[\r\n])data:")
_EVENTS, _LINES = "text/event-stream", "application/x-ndjson"
_STRING = re.compile(r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*+(?:\"|\\?\Z)", re.DOTALL)
"""A string of JSON, or the beginning of one that has no end: the rest is then not searched again."""
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?utf[-_]?(7|16|32|16-[bl]e|32-[bl]e)(?![-\w])", re.IGNORECASE)


def find_other_leaks(x: Exchange, checks: Collection[str]) -> frozenset[str]:
    """Return those of the checks of leaks that fail on what only some clients show of a complete answer."""
    checks = LEAK_CHECKS & frozenset(checks)
    if not checks or x.response is None or not x.response.body or x.api_adapter.is_raw or x.events is not None:
        return frozenset()
    found: set[str] = set()
    document = _decode(x)
    stream = _as_stream(x, document)
    if stream is not None and stream.events is not None:
        found |= find_failures(stream, checks, checks).keys()
        document = "\n".join(one.data for one in stream.events.events if not one.is_done and one.value is None)
    try:
        readings = read_json(document)
    except (InvalidJsonError, TooManyReadingsError):
        texts = texts_of(document)
    else:
        for other in _others(x, readings):
            found |= find_failures(other, checks, checks).keys()
        texts = [*_texts_without_answer(x, readings.value)]
        texts += (one for _, one in rare_texts_of_answer(readings.value, x.api))
    is_error = not x.response.is_success or x.error is not None
    return frozenset(found).union(check for check in checks if any(find_text_leaks(x, check, texts, is_error=is_error)))


def _decode(x: Exchange) -> str:
    """Return the body as clients decode it that detect its encoding, as `requests` does, or obey its charset."""
    body = x.response.body if x.response is not None else b""
    charset = _CHARSET.search(x.response.headers.get("content-type", "")) if x.response is not None else None
    return body.decode(f"utf-{charset[1]}" if charset is not None else json.detect_encoding(body), "replace")


def _as_stream(x: Exchange, document: str) -> Exchange | None:
    """Return the exchange with its body read as a stream, if it has events or lines of JSON."""
    is_lines = x.api_adapter.framing is Framing.LINES and document.count("\n{") > 0
    if x.response is None or not (is_lines or _EVENT.search(document) is not None):
        return None
    headers = {**x.response.headers, "content-type": _LINES if is_lines else _EVENTS}
    chunks = (Chunk(arrival_time=0.0, data=document.encode("utf-8", "backslashreplace")),)
    stream = as_success(replace(x, response=replace(x.response, headers=headers, chunks=chunks)))
    is_read = stream.events is not None and any(isinstance(one.value, dict) for one in stream.events.events)
    return stream if is_read else None


def texts_of(document: str) -> list[str]:
    """Return the texts that a document may show that is no JSON: its strings, and unless it resembles JSON, itself with and without tags."""
    is_like_json = document.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
    texts = [document] if not is_like_json else []
    if texts and _TAG.search(document) is not None:
        texts.append(_TAG.sub("", document))
    if texts and TEMPLATE_CODE.search(document) is not None:
        return texts
    for literal in _STRING.findall(document):
        with suppress(ValueError):
            texts.append(text(json.loads(literal, strict=False)))
    return texts


def _others(x: Exchange, readings: JsonReadings) -> Iterator[Exchange]:
    """Yield the exchange with each reading that is not the one of the checks."""
    for value in (*(() if x.response_json is not None else (readings.value,)), *readings.others):
        yield with_json(as_success(x), value)


def with_json(x: Exchange, value: Json) -> Exchange:
    """Return the exchange with this JSON value as its answer."""
    if x.response is None:
        return x
    last = x.response.chunks[-1].arrival_time if x.response.chunks else 0.0
    data = dumps(value).encode("utf-8", "backslashreplace")
    changed = replace(x, response=replace(x.response, chunks=(Chunk(arrival_time=last, data=data),)))
    share_request_views(x, changed)
    return changed


def _texts_without_answer(x: Exchange, value: Json) -> Iterator[str]:
    """Yield the texts of a JSON value that has no answer in the form of its API."""
    answers = with_json(as_success(x), value).answers
    read = (field for one in answers for field in one.fields if field.kind is not FieldKind.NAME)  # a role is no answer
    if not any(field.text.strip() for field in read):
        yield from strings(value)
