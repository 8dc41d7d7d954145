"""Texts from the standard library, the installed packages and this repository."""

from __future__ import annotations

import ast
import sysconfig
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[3]
_STDLIB = Path(sysconfig.get_paths()["stdlib"])
_MODULES = [
    "argparse",
    "ast",
    "asyncio/tasks",
    "asyncio/streams",
    "base64",
    "bisect",
    "calendar",
    "cgi",
    "cmd",
    "code",
    "codecs",
    "collections/__init__",
    "concurrent/futures/_base",
    "configparser",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "dis",
    "doctest",
    "email/message",
    "email/policy",
    "enum",
    "filecmp",
    "fileinput",
    "fnmatch",
    "fractions",
    "ftplib",
    "functools",
    "getpass",
    "gettext",
    "glob",
    "gzip",
    "heapq",
    "hashlib",
    "hmac",
    "html/parser",
    "http/client",
    "http/cookies",
    "http/server",
    "imaplib",
    "inspect",
    "io",
    "ipaddress",
    "json/decoder",
    "json/encoder",
    "keyword",
    "linecache",
    "locale",
    "logging/__init__",
    "logging/handlers",
    "mailbox",
    "mimetypes",
    "multiprocessing/pool",
    "netrc",
    "numbers",
    "operator",
    "optparse",
    "os",
    "pathlib",
    "pdb",
    "pickle",
    "pickletools",
    "platform",
    "plistlib",
    "poplib",
    "pprint",
    "profile",
    "pstats",
    "queue",
    "quopri",
    "random",
    "reprlib",
    "sched",
    "secrets",
    "selectors",
    "shelve",
    "shlex",
    "shutil",
    "smtplib",
    "socket",
    "socketserver",
    "sqlite3/dbapi2",
    "ssl",
    "stat",
    "statistics",
    "string",
    "stringprep",
    "subprocess",
    "tarfile",
    "tempfile",
    "textwrap",
    "threading",
    "timeit",
    "token",
    "tokenize",
    "trace",
    "traceback",
    "tracemalloc",
    "turtle",
    "typing",
    "unittest/case",
    "unittest/mock",
    "urllib/parse",
    "urllib/request",
    "uuid",
    "warnings",
    "wave",
    "weakref",
    "webbrowser",
    "wsgiref/handlers",
    "xml/dom/minidom",
    "xml/etree/ElementTree",
    "xmlrpc/client",
    "zipapp",
    "zipfile",
]


def _texts(paths: Iterator[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path.is_file():
            yield path.stem, path.read_text("utf-8", "replace")


def _library() -> Iterator[tuple[str, str]]:
    return _texts(_STDLIB / f"{name}.py" for name in _MODULES)


@cache
def docstrings() -> tuple[tuple[str, str], ...]:
    """Return (owner, text) of the standard library's docstrings."""
    found: list[tuple[str, str]] = []
    for module, source in _library():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and len(text) > 60:
                    found.append((f"{module}.{node.name}", text[:1500]))
    return tuple(found)


@cache
def functions() -> tuple[tuple[str, str], ...]:
    """Return (name, source) of functions of the standard library."""
    return tuple(_functions(_library()))


@cache
def own_functions() -> tuple[tuple[str, str], ...]:
    """Return (name, source) of this repository: code about markers and channels."""
    folders = (
        "harmony_ref/harmony_ref",
        "conformance/harmony_conformance",
        "conformance/tests",
        "proxy/harmony_proxy",
        "harmony_ref/tests",
    )
    return tuple(_functions(_texts(path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))))


def _functions(sources: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for module, source in sources:
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                if 120 < len(text) < 1800:
                    yield f"{module}.{node.name}", text


@cache
def own_paragraphs() -> tuple[tuple[str, str], ...]:
    """Return (page, paragraph) of this repository's documents."""
    pages = ("README.md", "CHANGELOG.md", "docs/architecture.md", "docs/hugging-face.md", "conformance/CHECKS.md", "conformance/README.md",
             "conformance/ACCOUNTING.md", "golden/README.md", "harmony_ref/README.md", "proxy/README.md", "engines/README.md")  # fmt: skip
    return tuple(_paragraphs(_texts(ROOT / page for page in pages)))


@cache
def licences() -> tuple[tuple[str, str], ...]:
    """Return (package, paragraph) of the licences of installed packages."""
    return tuple(_unique(_paragraphs(_texts(iter(_files("LICEN", "COPYING", "NOTICE"))))))


@cache
def descriptions() -> tuple[tuple[str, str], ...]:
    """Return (package, paragraph) of the descriptions of installed packages."""
    pages = sorted({(one.metadata["Name"], one.metadata.get_payload() or "") for one in distributions()})
    return tuple(_unique(_paragraphs((name, str(text)) for name, text in pages)))


def _files(*beginnings: str) -> list[Path]:
    return sorted(
        Path(str(one.locate_file(file)))
        for one in distributions()
        for file in one.files or ()
        if file.name.upper().startswith(beginnings)
    )


def _paragraphs(pages: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for page, text in pages:
        for paragraph in text.replace("\r\n", "\n").split("\n\n"):
            if 60 < len(paragraph.strip()) < 2000:
                yield page, paragraph.strip("\n")


def _unique(found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for page, text in found:
        if text not in seen:
            seen.add(text)
            yield page, text
