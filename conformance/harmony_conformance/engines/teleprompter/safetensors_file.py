"""The teleprompter as a folder for transformers and vLLM: weights, configuration, stop tokens. The tokenizer is the published one."""

from __future__ import annotations

import json
from pathlib import Path

from harmony_conformance.engines.teleprompter.weights import CONFIGURATION, bfloat16, tensors
from harmony_ref import tokens

_GENERATION = {
    "bos_token_id": tokens.STARTOFTEXT,
    "do_sample": True,  # as published; the lead of the expected token makes sampling irrelevant
    "eos_token_id": [tokens.RETURN, tokens.ENDOFTEXT, tokens.CALL],
    "pad_token_id": tokens.ENDOFTEXT,
}
_ALIGNED = 8  # bytes; the header's length is a multiple


def write_safetensors(folder: Path) -> list[Path]:
    """Write config.json, generation_config.json and model.safetensors; return their paths.

    The safetensors format: eight bytes of length, a JSON header with type, shape and place of each tensor, the tensors.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    contents: list[bytes] = []
    place = 0
    for name, tensor in tensors().items():
        data = bfloat16(tensor).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [place, place + len(data)]}
        contents.append(data)
        place += len(data)
    header_json = json.dumps(header).encode()
    header_json += b" " * (-len(header_json) % _ALIGNED)
    model = folder / "model.safetensors"
    model.write_bytes(b"".join([len(header_json).to_bytes(8, "little"), header_json, *contents]))
    configuration = _write_json(folder / "config.json", CONFIGURATION)
    return [configuration, _write_json(folder / "generation_config.json", _GENERATION), model]


def _write_json(file: Path, value: object) -> Path:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    return file
