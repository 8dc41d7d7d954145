"""Defects of unusual requests: an unexpected value fails this request or crashes the engine."""

from harmony_conformance.json_value import JsonObject, value_at
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


DEFECTS = (
    Defect(
        "out-of-range-500",
        "A sampling parameter that is out of range fails with a 500 (an assertion).",
        OnRequest(_fails_out_of_range),
    ),
    Defect(
        "engine-down-after-huge-seed",
        "A seed of more than 64 bits crashes the engine: every later request gets a 500.",
        OnOutage(_has_huge_seed),
    ),
    Defect(
        "engine-down-after-text-format",
        "`response_format: {type: text}` requests a grammar that does not exist and crashes the engine.",
        OnOutage(lambda body: value_at(body, "response_format", "type") == "text"),
    ),
)
