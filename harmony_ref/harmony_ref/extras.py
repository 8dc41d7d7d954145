"""The command that installs an extra: from the checkout, the wheel or the repository that the package itself came from."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from shlex import quote
from typing import Final

from harmony_ref.json_value import Json

DISTRIBUTION: Final = "harmony-conformance"


def install_command(extra: str) -> str:
    """Return the command that installs an extra of this package.

    The package is on no index, so the name alone would not be found. Its installer recorded its source (PEP 610).
    """
    try:
        recorded = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:  # its modules are on the path, and it is not installed
        return f"pip install '.[{extra}]' in the checkout"
    return f"pip install {_requirement(extra, recorded)}"


def _requirement(extra: str, recorded: str | None) -> str:
    """Return the requirement as a word of a shell. `recorded`: the content of `direct_url.json`, None for a package of an index."""
    try:
        source: Json = json.loads(recorded or "{}")
    except ValueError:
        source = {}
    url = source.get("url") if isinstance(source, dict) else None
    if not isinstance(source, dict) or not isinstance(url, str):
        return quote(f"{DISTRIBUTION}[{extra}]")
    if url.startswith("file:"):
        from urllib.request import url2pathname  # noqa: PLC0415 - takes time, and is needed for this message alone

        flag = "--editable " if _member(source, "dir_info", "editable") is True else ""
        path = url2pathname(url.removeprefix("file://"))
        return f"{flag}{quote(f'{path}[{extra}]')}"
    system, commit = (_member(source, "vcs_info", name) for name in ("vcs", "commit_id"))
    place = f"{system}+{url}@{commit}" if system else url
    return quote(f"{DISTRIBUTION}[{extra}] @ {place}")


def _member(source: dict[str, Json], table: str, name: str) -> Json:
    found = source.get(table)
    return found.get(name) if isinstance(found, dict) else None
