import importlib.util
import json
import struct

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.engines.teleprompter.script import write_script
from harmony_conformance.engines.teleprompter.weights import tensors
from harmony_ref import encode_with_special_tokens
from harmony_ref.extras import install_command


def test_a_script_is_printed(capsys):
    completion = "<|channel|>final<|message|>Hello!<|return|>"
    assert main(["teleprompter", "script", completion]) == 0
    assert capsys.readouterr().out == write_script(encode_with_special_tokens(completion)) + "\n"


def test_a_script_that_is_too_long_is_one_line(capsys):
    assert main(["teleprompter", "script", "word " * 300]) == 2
    assert "expected at most 254 tokens for the teleprompter" in capsys.readouterr().err


def test_a_folder_for_transformers_is_written(tmp_path):
    assert main(["teleprompter", "build", str(tmp_path / "new"), "--format", "safetensors"]) == 0
    written = (tmp_path / "new" / "model.safetensors").read_bytes()
    length = int.from_bytes(written[:8], "little")
    header = json.loads(written[8 : 8 + length])
    assert length % 8 == 0
    assert header.keys() == {"__metadata__", *tensors()}
    assert max(one["data_offsets"][1] for one in header.values() if "data_offsets" in one) == len(written) - 8 - length
    assert header["lm_head.weight"] == {
        "dtype": "BF16",
        "shape": [201088, 64],
        "data_offsets": header["lm_head.weight"]["data_offsets"],
    }
    assert json.loads((tmp_path / "new" / "config.json").read_text())["model_type"] == "gpt_oss"


def test_a_file_for_llama_cpp_is_written_the_same_each_time(tmp_path, monkeypatch):
    gguf_file = pytest.importorskip("harmony_conformance.engines.teleprompter.gguf_file")
    monkeypatch.setattr(gguf_file, "_merges", lambda: iter([(b" ", b" ")]))  # ten seconds, and not in question here
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages }}")
    for name in ("one", "two"):
        assert main(["teleprompter", "build", str(tmp_path / name), "--chat-template", str(template)]) == 0
    one, two = ((tmp_path / name / "teleprompter.gguf").read_bytes() for name in ("one", "two"))
    assert one == two
    assert one.startswith(b"GGUF")
    for held in (
        "gpt-oss",
        "{{ messages }}",
        "ĠHello",
        "<|return|>",
        "<|endofprompt|>",
        "[PAD201087]",
        "blk.1.attn_sinks",
    ):
        assert held.encode() in one
    ends = struct.pack("<3i", 199999, 200002, 200012)  # those of Ollama's files; a call must end the turn
    assert b"tokenizer.ggml.eos_token_ids" in one
    assert ends in one


def test_merges_are_those_of_the_published_tokenizer():
    """The first, the last and the number of those in tokenizer.json of gpt-oss; they are equal throughout."""
    gguf_file = pytest.importorskip("harmony_conformance.engines.teleprompter.gguf_file")
    merges = [" ".join(map(gguf_file._spelled, pair)) for pair in gguf_file._merges()]
    assert (len(merges), merges[:3], merges[-2:]) == (446189, FIRST, LAST)


def test_a_gguf_file_needs_a_template(tmp_path, capsys):
    assert main(["teleprompter", "build", str(tmp_path)]) == 2
    assert "--chat-template is required for --format gguf" in capsys.readouterr().err


def test_a_missing_extra_is_one_line_that_names_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["teleprompter", "build", str(tmp_path)]) == 2
    assert f"numpy is not installed: {install_command('teleprompter')}" in capsys.readouterr().err


FIRST = ["Ġ Ġ", "Ġ ĠĠĠ", "ĠĠ ĠĠ"]
LAST = ["Ġcoc os", "Ġcoco s"]
