"""The parts of `engines/ollama`: the arguments that Ollama passes to `llama-server`, and the template that the setup makes."""

import hashlib
import runpy
from pathlib import Path
from zipfile import ZipFile

import pytest

SETUP = Path(__file__).parents[3] / "engines" / "ollama"
if not SETUP.is_dir():
    pytest.skip("the archive of the sources has no setups", allow_module_level=True)
RUNNER = runpy.run_path(str(SETUP / "llama_server.py"))
TEMPLATE = runpy.run_path(str(SETUP / "published_template.py"))
PASSED = (
    "--model /m.gguf --port 18500 --host 127.0.0.1 --no-webui --offline -c 131072 -np 4 --log-verbosity 4 --no-log-prefix --no-log-timestamps "
    "--no-jinja --chat-template chatml --flash-attn auto -b 512 -ub 256 --context-shift --keep 4"
)
"""The arguments of Ollama 0.34.4."""


def test_the_arguments_that_change_the_server_are_read():
    options = vars(RUNNER["read_arguments"](PASSED.split()))
    assert options == {
        "model": "/m.gguf",
        "host": "127.0.0.1",
        "port": 18500,
        "window": 131072,
        "slots": 4,
        "batch": 512,
        "small_batch": 256,
        "keep": 4,
        "context_shift": True,
        "no_jinja": True,
        "chat_template": "chatml",
    }


def test_a_question_for_devices_has_no_model(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["llama-server", "--list-devices", "--offline", "--verbose"])
    RUNNER["main"]()
    assert capsys.readouterr().out == "Available devices:\n"


def wheel(folder, template):
    file = folder / "made.whl"
    with ZipFile(file, "w") as archive:
        modelfile = f'FROM x\nTEMPLATE """{template}"""\nPARAMETER top_k 0\n'
        archive.writestr(TEMPLATE["SOURCE"], f"other = 1\n{TEMPLATE['NAME']} = {modelfile!r}\n")
    return file


def test_a_template_with_another_digest_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^invalid template: expected sha256 51468a0fd901"):
        TEMPLATE["read_first_version"](wheel(tmp_path, "<|start|>"))


def test_the_template_is_read_out_of_its_modelfile(tmp_path, monkeypatch):
    read = TEMPLATE["read_first_version"]
    monkeypatch.setitem(read.__globals__, "FIRST_SHA256", hashlib.sha256(b"<|start|>{{ .System }}").hexdigest())
    assert read(wheel(tmp_path, "<|start|>{{ .System }}")) == "<|start|>{{ .System }}"
