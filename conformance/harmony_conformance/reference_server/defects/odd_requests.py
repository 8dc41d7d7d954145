"""Defects in the face of requests that are odd: a value that nobody foresaw fails the server, for this request or for all."""

from harmony_conformance.json_value import JsonObject, at
from harmony_conformance.reference_server.defects.stages import Defect, OnOutage, OnRequest
from harmony_conformance.reference_server.requests.errors import server_failure

_LARGEST = 2**64
_RANGES = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2)}


def _fails_out_of_range(body: JsonObject) -> JsonObject:
    for name, (least, most) in _RANGES.items():
        value = body.get(name)
        if isinstance(value, int | float) and not least <= value <= most:
            raise server_failure(f"AssertionError: {name} has to be between {least} and {most}")
    return body


def _has_huge_seed(body: JsonObject) -> bool:
    seed = body.get("seed")
    return isinstance(seed, int) and seed >= _LARGEST


def _asks_for_text(body: JsonObject) -> bool:
    return at(body, "response_format", "type") == "text"


DEFECTS = (
    Defect(
        id="out-of-range-500",
        catalogue=(),
        summary="A sampling setting that is out of range is an assertion that fails: a 500.",
        change=OnRequest(_fails_out_of_range),
    ),
    Defect(
        id="engine-down-after-huge-seed",
        catalogue=(),
        summary="A seed of more than 64 bits can not be passed to the engine, which dies of it: every later request is a 500.",
        change=OnOutage(_has_huge_seed),
    ),
    Defect(
        id="engine-down-after-text-format",
        catalogue=(),
        summary="`response_format: {type: text}` is taken for a demand for a grammar, and the engine dies of there being none.",
        change=OnOutage(_asks_for_text),
    ),
)
