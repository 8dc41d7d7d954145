"""Reference pages of the Python API: signatures and docstrings, which mkdocstrings reads from the source."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import harmony_ref
from site_sources.markdown import code, table, write_page

_PARTS: Mapping[str, str] = {
    "rendering": "Rendering",
    "parsing": "Parsing",
    "messages": "Messages",
    "tokenizer": "Tokens",
    "lenient": "Recovering from errors",
    "explanation": "Explaining a prompt",
    "styles": "Styles of rendering",
    "errors": "Errors",
}
"""Headings, by the part of harmony_ref that defines a name."""
_OTHER = "Other names"
PAGES: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "golden": (
        "Assertions for a renderer or parser",
        "Judge your own renderer or parser by the [golden vectors](../../golden.md), in pytest.",
        (
            "harmony_conformance.golden.assertion.assert_conforms",
            "harmony_conformance.golden.assertion.assert_vector",
            "harmony_conformance.golden.assertion.vector_parameters",
        ),
    ),
    "audit": (
        "Judging batches of a log",
        "Judge the rows of an Arrow table, in an engine that splits tables itself: [other engines](../../docs/audit-reference.md#in-other-engines).",
        (
            "harmony_conformance.audit.arrow_batches.judge_batch",
            "harmony_conformance.audit.batches.ReadOptions",
            "harmony_conformance.audit.redaction.Excerpts",
        ),
    ),
    "checks": (
        "Checks of your own",
        "The names that a [plug-in](../../docs/own-checks.md) uses. `conditions` of the module has those of [every check](../../conformance/CHECKS.md).",
        (
            *(f"harmony_conformance.judge.check.{name}" for name in ("check", "comparison", "mismatch", "variant")),
            *(f"harmony_conformance.judge.check.{name}" for name in ("Finding", "Reads", "Severity", "Verdict")),
            *(f"harmony_conformance.judge.condition.{name}" for name in ("condition", "evidence")),
            "harmony_conformance.judge.clause.Clause",
            *(f"harmony_conformance.evidence.exchange.{name}" for name in ("Exchange", "Series")),
            *(f"harmony_conformance.redactable_text.{name}" for name in ("RedactableText", "quote")),
        ),
    ),
    "proxy": (
        "The guard",
        "The [proxy](../../docs/proxy.md) as ASGI middleware, and the guard below it for other frameworks.",
        (
            "harmony_proxy.asgi.guard.HarmonyGuard",
            "harmony_proxy.configuration.load_rules",
            "harmony_proxy.configuration.Rules",
            "harmony_proxy.guard.guard.Guard",
        ),
    ),
}
"""Title, purpose and names of each page except that of harmony_ref."""
_IMPORTS = {
    "harmony_conformance.golden.assertion": "harmony_conformance",
    **dict.fromkeys(
        (
            *(f"harmony_conformance.judge.{name}" for name in ("check", "condition", "clause")),
            "harmony_conformance.evidence.exchange",
            "harmony_conformance.redactable_text",
        ),
        "harmony_conformance.plugin_api",
    ),
    "harmony_proxy.asgi.guard": "harmony_proxy.asgi",
}
"""Modules from which users import, by the modules that define the names."""


def write_api(folder: Path) -> None:
    """Write the pages, and an index with every public name."""
    of_reference = reference_names()
    places = [
        *((name, "harmony_ref", f"harmony_ref.md#{path}") for part in of_reference.values() for name, path in part),
        *(
            (path.rpartition(".")[2], import_place(path), f"{page}.md#{path}")
            for page, (_, _, paths) in PAGES.items()
            for path in paths
        ),
    ]
    rows = ((f"[{code(name)}]({place})", code(f"from {module} import {name}")) for name, module, place in places)
    about = "The public names. [Versions](../../docs/versions.md) has the promise of stability. All other modules are internal."
    write_page(folder / "index.md", ("# Python API\n", f"{about}\n", *table(("Name", "Import"), rows)))
    write_page(folder / "harmony_ref.md", _reference_page(of_reference))
    for name, (title, purpose, paths) in PAGES.items():
        write_page(folder / f"{name}.md", (f"# {title}\n", f"{purpose}\n", *_imports(paths), *_objects(paths, "##")))


def import_place(path: str) -> str:
    """Return the module from which users import a name."""
    module = path.rpartition(".")[0]
    return _IMPORTS.get(module, module)


def reference_names() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return the public names of harmony_ref, each with the path of its definition, by part."""
    parts: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*_PARTS.values(), _OTHER)}
    for name in sorted(harmony_ref.__all__, key=str.lower):
        value = getattr(harmony_ref, name)
        module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", "")
        defined = module if module.startswith("harmony_ref") else _MODULE_OF_VALUES[name]
        path = defined if inspect.ismodule(value) else f"{defined}.{name}"
        parts[_PARTS.get(defined.split(".")[1], _OTHER)].append((name, path))
    return {heading: names for heading, names in parts.items() if names}


_MODULE_OF_VALUES = {
    "Content": "harmony_ref.messages.message_types",
    "Event": "harmony_ref.messages.events",
    "Json": "harmony_ref.json_value",
    "STYLES": "harmony_ref.styles",
}
"""Modules of values that do not name their own: type aliases and constants."""


def _reference_page(names: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[str]:
    yield "# harmony_ref\n"
    yield "The reference library. Its [guide](../../harmony_ref.md) has the examples. `from harmony_ref import NAME` imports each name.\n"
    for heading, part in names.items():
        yield f"## {heading}\n"
        yield from _objects((path for _, path in part), "###")


def _imports(paths: Sequence[str]) -> Iterator[str]:
    yield "```python"
    yield from (f"from {import_place(path)} import {path.rpartition('.')[2]}" for path in paths)
    yield "```\n"


def _objects(paths: Iterable[str], heading: str) -> Iterator[str]:
    for path in paths:
        yield f"::: {path}"
        yield f"    options:\n      heading_level: {len(heading)}"
        yield (
            '      filters: ["^[A-Z]"]\n' if path == harmony_ref.tokens.__name__ else ""
        )  # its functions are listed by themselves
