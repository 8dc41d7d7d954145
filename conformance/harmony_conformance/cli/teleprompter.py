"""`harmony-conformance teleprompter`: build the checkpoint, write a script."""

from __future__ import annotations

import importlib.util
from argparse import ArgumentParser, Namespace
from pathlib import Path

from harmony_conformance.cli.command import Command
from harmony_conformance.engines.teleprompter.script import LAG, TRAILER, TeleprompterScriptError, write_script
from harmony_conformance.errors import Exit, UsageError
from harmony_ref import encode_with_special_tokens

_GGUF, _SAFETENSORS = "gguf", "safetensors"
_NEEDED = {_GGUF: ("numpy", "gguf"), _SAFETENSORS: ("numpy",)}


def configure(parser: ArgumentParser) -> None:
    """What to do."""
    ways = parser.add_subparsers(dest="way", required=True, metavar="build|script")
    build = ways.add_parser("build", help="write the checkpoint")
    build.add_argument("folder", metavar="DIR", type=Path, help="where it is written")
    build.add_argument(
        "--format", choices=list(_NEEDED), default=_GGUF, help="for llama.cpp, or for transformers and vLLM"
    )
    build.add_argument(
        "--chat-template",
        metavar="FILE",
        type=Path,
        help="the template of the model it stands in for; a GGUF file holds it",
    )
    script = ways.add_parser("script", help="print the end of a last message that makes the model say a text")
    script.add_argument("text", metavar="TEXT", help="a completion; every marker in it is the special token")
    script.add_argument(
        "--trailer",
        type=int,
        choices=range(1, LAG),
        metavar="N",
        default=TRAILER,
        help=f"tokens that the server writes behind the text (default: {TRAILER})",
    )


def execute(arguments: Namespace) -> int:
    """Build, or print."""
    if arguments.way == "script":
        try:
            print(write_script(encode_with_special_tokens(arguments.text), arguments.trailer))
        except TeleprompterScriptError as problem:
            raise UsageError(str(problem)) from None
        return Exit.CONFORMS
    return _build(arguments.folder, arguments.format, arguments.chat_template)


def _build(folder: Path, form: str, template: Path | None) -> int:
    missing = next((name for name in _NEEDED[form] if importlib.util.find_spec(name) is None), None)
    if missing is not None:
        raise UsageError(f"{missing} is not installed: pip install 'harmony-conformance[teleprompter]'")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in _written(folder, form, template):
            print(f"{file}  {file.stat().st_size} bytes")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"teleprompter build: {problem}") from None
    return Exit.CONFORMS


def _written(folder: Path, form: str, template: Path | None) -> list[Path]:
    """The files, written. What they are made with is an extra, and imported here."""
    if form == _SAFETENSORS:
        from harmony_conformance.engines.teleprompter.safetensors_file import write_safetensors  # noqa: PLC0415

        return write_safetensors(folder)
    if template is None:
        raise UsageError("a GGUF file holds the chat template: name it by --chat-template")
    from harmony_conformance.engines.teleprompter.gguf_file import write_gguf  # noqa: PLC0415

    return [write_gguf(folder, template.read_text(encoding="utf-8"))]


COMMAND = Command(
    name="teleprompter",
    help="a checkpoint that says what its prompt tells it to, and scripts for it",
    configure=configure,
    run=execute,
)
