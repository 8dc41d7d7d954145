"""Audit the locks of this repository with pip-audit.

    python tools/audit_dependencies.py PIP_AUDIT LOCK...

A version with a known vulnerability is audited first. If it is not reported, no advisories can be reached, and one line says so:
pip-audit itself reports "no known vulnerabilities" then. Exit code 1 if a lock has a vulnerable version or was not audited, else 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CONTROL = "h11==0.14.0"
"""Has CVE-2025-43859."""
UNREACHABLE = "audit-dependencies: not audited: pip-audit reaches no advisories from here"


def list_vulnerable(program: str, lock: Path) -> Iterator[str]:
    """Yield a line for each vulnerable version, and for each that could not be audited."""
    command = [program, "--format", "json", "--progress-spinner", "off", "--disable-pip", "--no-deps", "--requirement"]
    found = subprocess.run([*command, str(lock)], capture_output=True, text=True, check=False)  # noqa: S603
    if not found.stdout.strip():  # it has a report with findings too, and with exit code 1
        yield f"not audited: {(found.stderr.strip().splitlines() or ['no output'])[-1]}"
        return
    for package in json.loads(found.stdout)["dependencies"]:
        pin = f"{package['name']}=={package.get('version', '?')}"
        for advisory in package.get("vulns", ()):
            names = ", ".join((advisory["id"], *advisory["aliases"]))
            yield f"{pin}: {names}; fixed in {', '.join(advisory['fix_versions']) or 'no version'}"
        if "skip_reason" in package:
            yield f"{pin}: not audited: {package['skip_reason']}"


def reaches_advisories(program: str) -> bool:
    """Return True if pip-audit reports the vulnerability of `CONTROL`."""
    with tempfile.TemporaryDirectory() as folder:
        (lock := Path(folder) / "control.txt").write_text(f"{CONTROL}\n", "utf-8")
        return any("fixed in" in line for line in list_vulnerable(program, lock))


def main() -> int:
    """Print the result for each lock. Return 1 if one has a vulnerable version, or was not audited."""
    program, *locks = sys.argv[1:]
    if not reaches_advisories(program):
        sys.stdout.write(f"{UNREACHABLE}\n")
        return 0
    lines = [f"{lock}: {line}" for lock in locks for line in list_vulnerable(program, Path(lock))]
    sys.stdout.write("".join(f"{line}\n" for line in lines) or "audit-dependencies: no known vulnerability\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
