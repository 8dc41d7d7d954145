"""The version of this package: `0.2.0` of a release, `0.2.0+g1d13a950` or `0.2.0+unknown` of any other build."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from pathlib import Path

from harmony_conformance.runtime.checkout import COMMIT_FILE, UNKNOWN, commit_of

_PACKAGE = Path(__file__).parents[1]
_DIGITS = 8


def package_version() -> str:
    """Return the version without the commit: that of the last release, or of the next one."""
    return version("harmony-conformance")


@cache
def build_version(package: Path = _PACKAGE) -> str:
    """Return the version, with the commit unless this is a release."""
    built = package / COMMIT_FILE
    commit = built.read_text("utf-8").strip() if built.is_file() else commit_of(package.parents[1])
    if not commit:
        return package_version()
    return f"{package_version()}+{UNKNOWN if commit == UNKNOWN else f'g{commit[:_DIGITS]}'}"
