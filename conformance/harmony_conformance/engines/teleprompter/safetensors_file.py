"""The teleprompter as a folder that transformers and vLLM load: weights, configuration, what ends a generation. The tokenizer is the published one."""

from __future__ import annotations

import json
from pathlib import Path

from harmony_conformance.engines.teleprompter.weights import CONFIGURATION, bfloat16, tensors
from harmony_ref import tokens

_GENERATION = {
    "bos_token_id": tokens.STARTOFTEXT,
    "do_sample": True,  # as published; the right token is so far ahead that sampling changes nothing
    "eos_token_id": [tokens.RETURN, tokens.ENDOFTEXT, tokens.CALL],
    "pad_token_id": tokens.ENDOFTEXT,
}
_ALIGNED = 8  # bytes that the header is a multiple of


def write_safetensors(folder: Path) -> list[Path]:
    """Write config.json, generation_config.json and model.safetensors; the files.

    The format: eight bytes of length, a JSON header that names type, shape and place of each tensor, the tensors.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    held: list[bytes] = []
    place = 0
    for name, tensor in tensors().items():
        data = bfloat16(tensor).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [place, place + len(data)]}
        held.append(data)
        place += len(data)
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % _ALIGNED)
    model = folder / "model.safetensors"
    model.write_bytes(b"".join([len(written).to_bytes(8, "little"), written, *held]))
    return [
        _write_json(folder / "config.json", CONFIGURATION),
        _write_json(folder / "generation_config.json", _GENERATION),
        model,
    ]


def _write_json(file: Path, value: object) -> Path:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    return file
