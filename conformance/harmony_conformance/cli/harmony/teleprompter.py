"""`harmony-conformance teleprompter build|script`: build a checkpoint that replays scripted output, or print a script."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from pathlib import Path

from harmony_conformance.engines.teleprompter.script import TeleprompterScriptError, write_script
from harmony_conformance.errors import Exit, UsageError
from harmony_ref import encode_with_special_tokens
from harmony_ref.extras import install_command

_GGUF, _SAFETENSORS = "gguf", "safetensors"
_REQUIRED_MODULES = {_GGUF: ("numpy", "gguf"), _SAFETENSORS: ("numpy",)}


def execute(arguments: Namespace) -> int:
    """Build the checkpoint, or print the script."""
    if arguments.way == "build":
        return _build(arguments.folder, arguments.format, arguments.chat_template)
    try:
        print(write_script(encode_with_special_tokens(arguments.text), arguments.trailer))
    except TeleprompterScriptError as problem:
        raise UsageError(str(problem)) from None
    return Exit.CONFORMS


def _build(folder: Path, form: str, template: Path | None) -> int:
    missing = next((name for name in _REQUIRED_MODULES[form] if importlib.util.find_spec(name) is None), None)
    if missing is not None:
        raise UsageError(f"{missing} is not installed: {install_command('teleprompter')}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in _write(folder, form, template):
            print(f"{file}  {file.stat().st_size} bytes")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"teleprompter build: {problem}") from None
    return Exit.CONFORMS


def _write(folder: Path, form: str, template: Path | None) -> list[Path]:
    """Write the checkpoint and return its files. The writers need an optional extra, so they are imported here."""
    if form == _SAFETENSORS:
        from harmony_conformance.engines.teleprompter.safetensors_file import write_safetensors  # noqa: PLC0415

        return write_safetensors(folder)
    if template is None:
        raise UsageError("--chat-template is required for --format gguf")
    from harmony_conformance.engines.teleprompter.gguf_file import write_gguf  # noqa: PLC0415

    return [write_gguf(folder, template.read_text(encoding="utf-8"))]
