"""Reference pages of the configuration files and of the environment, made from the keys that their readers accept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.cli.run import run_all_file
from harmony_conformance.report.comparison import baseline_keys
from harmony_conformance.runtime.file_keys import FileKey
from harmony_proxy.configuration import PREFIX
from harmony_proxy.policy import setting_keys
from site_sources.markdown import anchor, code, prose, table, write_page

_HEADS = ("Key", "Type", "Default", "Meaning")


@dataclass(frozen=True, kw_only=True)
class ConfigurationFile:
    """A file, its keys, and their description.

    Attributes:
        omitted: Keys that the example leaves out.
    """

    name: str
    title: str
    about: str
    keys: Sequence[FileKey]
    command: str
    omitted: frozenset[str] = frozenset()

    def example(self) -> str:
        """Return a whole file with the example of each key."""
        parts = [
            [
                *([table] if table else []),
                *(key.example for key in self.keys if key.table == table and key.name not in self.omitted),
            ]
            for table in dict.fromkeys(key.table for key in self.keys)
        ]
        return "\n\n".join("\n".join(part) for part in parts)


FILES = (
    ConfigurationFile(
        name="endpoints",
        title="harmony-conformance.toml",
        about="Endpoints that `harmony-conformance run-all` tests one after the other. Keys above the first table apply to every endpoint."
        " The options are those of the commands [run](../commands/run.md), [rates](../commands/rates.md) and [load](../commands/load.md).",
        keys=run_all_file.KEYS,
        command="harmony-conformance run-all harmony-conformance.toml",
    ),
    ConfigurationFile(
        name="baseline",
        title="The baseline file",
        about="Failures that you expect, each with its reason. `run --baseline-write FILE` and `audit --baseline-write FILE` write the first one."
        " Patterns are those of a shell: `*` matches any text."
        " An entry expects a failure that all of its patterns match. An entry that explains no failure makes the run fail, until you remove it.",
        keys=baseline_keys.KEYS,
        command="harmony-conformance run TARGET --baseline known.toml\nharmony-conformance audit PATH --baseline known.toml",
        omitted=frozenset({"message", *baseline_keys.SOURCES}),
    ),
    ConfigurationFile(
        name="policy",
        title="The policy file of the proxy",
        about="What the [proxy](../../docs/proxy-policies.md#policies) does with a failed check: observe, repair or block. Without a policy it observes."
        " Only MUST checks can be repaired or blocked. [Repairs](../../docs/repairs.md) lists the checks that have a repair.",
        keys=setting_keys.KEYS,
        command="harmony-conformance proxy --upstream vllm:http://127.0.0.1:8000/v1 --policy policy.toml",
    ),
)
_OTHER_VARIABLES = (
    FileKey(
        name="SSL_CERT_FILE",
        kind="file",
        meaning="Trusted certificates, which replace the default ones.",
        example="/etc/ssl/private-ca.pem",
    ),
    FileKey(
        name="SSL_CERT_DIR",
        kind="folder",
        meaning="A folder of trusted certificates, which replace the default ones.",
        example="/etc/ssl/certs",
    ),
    FileKey(
        name="HTTP_PROXY",
        kind="URL",
        meaning="Proxy for http. `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` work as usual. `--proxy` takes precedence.",
        example="http://proxy.example:3128",
    ),
    FileKey(name="NO_COLOR", kind="any text", meaning="Output without colours.", example="1"),
    FileKey(
        name="COLUMNS",
        kind="number",
        meaning="Width of the report in the terminal.",
        example="120",
        default="that of the terminal",
    ),
    FileKey(
        name="HARMONY_CONFORMANCE_DEBUG", kind="any text", meaning="A traceback after an internal error.", example="1"
    ),
    FileKey(
        name="RAY_ADDRESS",
        kind="address",
        meaning="Cluster of `audit --engine ray`.",
        example="ray://head:10001",
        default="a new cluster on this machine",
    ),
)


def write_files(folder: Path) -> None:
    """Write a page for each file, one for the environment, and an index."""
    rows = [
        (f"[{code(file.title) if file.title.endswith('.toml') else file.title}]({file.name}.md)", code(file.command))
        for file in FILES
    ]
    about = "Every key of every file, made from the code that reads the file. An unknown key is an error, which names the place."
    write_page(
        folder / "index.md",
        (
            "# Configuration\n",
            f"{about}\n",
            *table(("File", "Command"), [*rows, ("[Variables of the environment](environment.md)", "all commands")]),
        ),
    )
    for file in FILES:
        write_page(folder / f"{file.name}.md", _page(file))
    write_page(folder / "environment.md", _environment())


def _page(file: ConfigurationFile) -> Iterator[str]:
    yield f"# {file.title}\n"
    yield f"{file.about}\n"
    yield f"```sh\n{file.command}\n```\n"
    yield "## Example\n"
    yield f"```toml\n{file.example()}\n```\n"
    for name in dict.fromkeys(key.table for key in file.keys):
        yield f"## {code(name) if name else 'Top of the file'}\n"
        prefix = f"{name.strip('[]')}." if name else ""
        yield from table(
            _HEADS,
            (
                _row(key, f"{prefix}{key.name}".replace('"', "").lower(), key.name)
                for key in file.keys
                if key.table == name
            ),
        )


def _row(key: FileKey, place: str, shown: str) -> tuple[str, str, str, str]:
    default = "required" if key.required else prose(key.default)
    return anchor(place, shown), prose(key.kind), default, f"{prose(key.meaning)}<br>{code(key.example)}"


def _environment() -> Iterator[str]:
    yield "# Variables of the environment\n"
    yield "The variable of an API key has a name of your choice: `--api-key-env NAME`.\n"
    yield "## Commands\n"
    yield from table(("Variable", *_HEADS[1:]), (_row(key, key.name.lower(), key.name) for key in _OTHER_VARIABLES))
    yield "## The guard as middleware\n"
    yield "`HarmonyGuard` in an ASGI server has no command line. These variables configure it. Its [arguments](../api/proxy.md) take precedence.\n"
    names = ((key, f"{PREFIX}{key.name}") for key in setting_keys.VARIABLES)
    yield from table(("Variable", *_HEADS[1:]), (_row(key, name.lower(), name) for key, name in names))
