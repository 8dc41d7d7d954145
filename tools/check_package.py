"""Build the sdist and the wheel, and try the wheel in empty environments: each Python that is found, without and with each extra.

    python tools/check_package.py TWINE OUT [--python 3.11,3.12] [--extra NAME,…]

The wheel of the checkout and the wheel of the unpacked sdist must have the same bytes. What is installed are the newest versions that pip selects.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = "harmony-conformance"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
ALL = "all"
QUICK = ("run", "reference", "--select", "simple_answer", "--latency", "0", "--out", "run")
COMMANDS: tuple[tuple[str, ...], ...] = (("--version",), ("help", "tutorial"), ("explain", "output-unparsed"), QUICK)
"""Commands of the wheel without an extra: each must exit with 0."""
PROGRAMS = {
    "pytest": "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '--pyargs', 'harmony_conformance.conformance_test',"
    " '--endpoint', 'reference', '-k', 'simple_answer']))",
    "http2": "import h2.connection",
    "socks": "import socksio",
    "compat": "from harmony_ref.compat import load_harmony_encoding as f; f('HarmonyGptOss').encode('a')",
    "huggingface": "from harmony_ref.huggingface.chat_template import render_chat_template",
    "teleprompter": "from harmony_conformance.cli.main import main; import sys; sys.exit(main(['teleprompter', 'build', '--format', 'safetensors', 't']))",
    "proxy": "import harmony_proxy.standalone.server, harmony_proxy.asgi;"
    " from harmony_proxy.judging.live.app import create_live_app as f; f('127.0.0.1', dict, None)",  # its page is package data
    "logs": "import pyarrow as a, pyarrow.parquet as p, sys; p.write_table(a.table({'output': ['Hello!']}), 'a.parquet');"
    " from harmony_conformance.cli.main import main; sys.exit(main(['audit', 'a.parquet']))",
    "mitmproxy": "import harmony_proxy.addon",
}
"""Program for each extra: it must exit with 0. An extra that is not in this table is installed, and nothing more."""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603


def require(ran: subprocess.CompletedProcess[str]) -> None:
    """End the program if a command failed."""
    if ran.returncode:
        sys.exit(f"{' '.join(ran.args)}: exit code {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")


def build(folder: Path, out: Path, *formats: str) -> None:
    """Build an sdist or a wheel of the sources in `folder`."""
    require(run(sys.executable, "-m", "build", "--no-isolation", *formats, "--outdir", out, folder, cwd=folder))


def digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def build_twice(out: Path, work: Path) -> Path:
    """Build both files, and the wheel once more of the unpacked sdist. Return the wheel."""
    for old in (*out.glob("*.whl"), *out.glob("*.tar.gz")):
        old.unlink()
    build(ROOT, out, "--sdist", "--wheel")
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "source", filter="data")
    (source,) = (work / "source").iterdir()
    build(source, work / "again", "--wheel")
    again = digest(work / "again" / wheel.name)
    if digest(wheel) != again:
        sys.exit(f"{wheel.name}: the sdist gives another wheel: {digest(wheel)} and {again}")
    for file in (sdist, wheel):
        sys.stdout.write(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB, sha256 {digest(file)}\n")
    return wheel


def interpreters(versions: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield version and path of each Python that is installed."""
    for version in versions:
        places = [
            shutil.which(f"python{version}"),
            *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")),
        ]
        for place in places:
            if place and not subprocess.run([str(place), "-c", ""], capture_output=True, check=False).returncode:  # noqa: S603
                yield version, str(place)
                break
        else:
            sys.stdout.write(f"{version}: not tried: this Python is not installed\n")


def try_wheel(wheel: Path, python: str, extra: str, extras: Sequence[str], work: Path) -> str:
    """Install the wheel into an empty environment, and run it. Return the error, or an empty text."""
    names = {"": "", ALL: f"[{','.join(extras)}]"}.get(extra, f"[{extra}]")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    bin_folder = work / "env" / "bin"
    steps: list[Sequence[str | Path]] = [
        (python, "-m", "venv", "--without-pip", "env"),
        (
            sys.executable,
            "-m",
            "pip",
            "--python",
            bin_folder / "python",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            f"{wheel}{names}",
        ),
        *((bin_folder / PROJECT, *words) for words in COMMANDS),
        *(
            (bin_folder / "python", "-c", PROGRAMS[name])
            for name in (extras if extra == ALL else [extra])
            if name in PROGRAMS
        ),
    ]
    for step in steps:
        ran = run(*step, cwd=work)
        if ran.returncode:
            return f"{' '.join(map(str, step[1:]))[:120]}: exit code {ran.returncode}: {(ran.stderr or ran.stdout).strip()[-400:]}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, check and try the package; return 1 if something failed."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("twine")
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", default=",".join(VERSIONS))
    parser.add_argument("--extra", help="only these; an empty name is the wheel without an extra")
    chosen = parser.parse_args(arguments)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        chosen.out.mkdir(parents=True, exist_ok=True)
        wheel = build_twice(chosen.out.resolve(), work)
        require(run(chosen.twine, "check", "--strict", *chosen.out.resolve().glob("harmony_conformance-*"), cwd=ROOT))
        sys.stdout.write("twine check: passed\n")
        for version, python in interpreters(chosen.python.split(",")):
            extras = [name for name in declared if name != "mitmproxy" or version != "3.11"]
            tried = chosen.extra.split(",") if chosen.extra is not None else ["", *extras, ALL]
            together = [name for name in extras if name != "mitmproxy"]  # it pins much of its environment
            for extra in tried:
                problem = try_wheel(wheel, python, extra, together, work / "tried")
                failed = failed or bool(problem)
                sys.stdout.write(f"{version} {extra or 'no extra'}: {problem or 'works'}\n")
                sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
