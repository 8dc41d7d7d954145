"""Write a CycloneDX software bill of materials of what is installed with each extra.

    python tools/write_sbom.py CYCLONEDX OUT [PYTHON_OF_MITMPROXY]

Each extra is installed into a separate environment, at the versions of its lock. The lists name no machine and no package index.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT = "harmony-conformance"
MITMPROXY = "mitmproxy"
RAY = "ray"
EXTRAS = (
    "",
    "pytest",
    "http2",
    "socks",
    "websocket",
    "compat",
    "huggingface",
    "teleprompter",
    "proxy",
    "otel",
    "logs",
    "needles",
    RAY,
    MITMPROXY,
)
LOCKS = {MITMPROXY: "mitmproxy-12.lock", RAY: "ray.lock"}
LOCK = "dev.lock"


def run(*command: str | Path) -> None:
    """Run a command, and print its errors only."""
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def install(python: str, environment: Path, wheels: Path, extra: str) -> None:
    """Install the wheel with an extra into a new environment of `python`."""
    run(python, "-m", "venv", "--without-pip", environment)
    into = environment / "bin" / "python"
    what = [f"{PROJECT}[{extra}]" if extra else PROJECT, "--find-links", str(wheels)]
    what += ["--constraint", str(ROOT / "requirements" / LOCKS.get(extra, LOCK))]
    uv = Path(sys.executable).with_name("uv")
    pip = [sys.executable, "-m", "pip", "--python", str(into), "install", "--disable-pip-version-check"]
    run(*([uv, "pip", "install", "--python", into] if uv.exists() else pip), "--quiet", *what)


def without_references(bom: str) -> dict[str, Any]:
    """Return the list without web addresses: the package URLs identify the components."""

    def keep(members: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in members if key != "externalReferences"}

    return json.loads(bom, object_pairs_hook=keep)


def write(cyclonedx: str, environment: Path, file: Path) -> None:
    """Write the list of one environment.

    Raises:
        ValueError: the list names a folder of this machine.
    """
    listed = file.with_suffix(".part")
    command = [cyclonedx, "environment", "--output-reproducible", "--pyproject", ROOT / "pyproject.toml"]
    run(*command, "-o", listed, environment / "bin" / "python")
    bom = without_references(listed.read_text("utf-8"))
    listed.unlink()
    text = json.dumps(bom, indent=1, sort_keys=True)
    for path in (str(ROOT), str(Path.home()), str(environment.parent), "file:"):
        if path in text:
            raise ValueError(f"invalid {file.name}: expected no path of this machine, got {path}")
    file.write_text(f"{text}\n", "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Write one file for each extra."""
    cyclonedx, out, newer = arguments[0], Path(arguments[1]), arguments[2] if len(arguments) > 2 else ""  # noqa: PLR2004
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder) / "wheels"
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, ROOT)
        for extra in EXTRAS:
            python = newer if extra == MITMPROXY else sys.executable
            if not Path(python).is_file():
                sys.stdout.write(f"sbom: {extra}: not written: no Python 3.12\n")
                continue
            environment = Path(folder) / (extra or PROJECT)
            install(python, environment, wheels, extra)
            file = out / f"{PROJECT}{f'-{extra}' if extra else ''}.cdx.json"
            write(cyclonedx, environment, file)
            sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
