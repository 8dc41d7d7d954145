"""`harmony-conformance golden check|write|list|copy|run|compare`: check, write or copy the golden data, or judge implementations by it."""

from __future__ import annotations

import errno
import os
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path

from harmony_conformance.cli.harmony import golden_run
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.vectors import agreement, json_schemas
from harmony_conformance.golden.vectors.implementation import Implementation, UnavailableImplementation
from harmony_conformance.golden.vectors.implementations import KINDS, present
from harmony_conformance.golden.vectors.vector_file import InvalidVectorsError, VectorFile, format_document, read_folder
from harmony_conformance.runtime.plural import number_of


def execute(arguments: Namespace) -> int:
    """Run the subcommand."""
    try:
        return _ACTIONS[arguments.action](arguments)
    except golden.GoldenError as problem:
        raise UsageError(str(problem)) from None


def _check(arguments: Namespace) -> int:
    top = golden.root() if arguments.folder is None else Path(arguments.folder)
    files = read_folder(top, KINDS)
    validator = json_schemas.validator_version()
    if validator is not None:
        json_schemas.validate_files(top, files)
    implementations = present()
    comparison = agreement.compare(files, [one for one in implementations if isinstance(one, Implementation)])
    total = sum(len(file.vectors) for file in files)
    if len(comparison.unanswered_ids) == total:
        raise UsageError("nothing could be checked: no installed implementation supports these vectors")
    for difference in comparison.differences:
        print(
            f"{difference.path}: {difference.id}: {difference.implementation}: "
            f"{agreement.describe_difference(difference.expected, difference.actual)}"
        )
    _print_counts(files, implementations, comparison)
    print(f"schemas: {'not checked, jsonschema is not installed' if validator is None else f'jsonschema {validator}'}")
    alone = f", {len(comparison.single_answer_ids)} run by one implementation" if comparison.single_answer_ids else ""
    unanswered = f", {len(comparison.unanswered_ids)} not run" if comparison.unanswered_ids else ""
    print(
        f"{number_of(total, 'vector')} in {number_of(len(files), 'file')}: {number_of(len(comparison.differences), 'difference')}{alone}{unanswered}"
    )
    return Exit.DIVERGES if comparison.differences else Exit.CONFORMS


def _write(arguments: Namespace) -> int:
    top = Path(arguments.folder)
    files = read_folder(top, KINDS)
    implementations = [one for one in present() if isinstance(one, Implementation)]
    documents = [agreement.complete(file, implementations) for file in files]
    disagreements = [disagreement for _, of_file in documents for disagreement in of_file]
    for disagreement in disagreements:
        print(f"{disagreement.path}: {disagreement.id}: {disagreement.problem}")
    if disagreements:
        print(f"nothing written: the implementations disagree on {number_of(len(disagreements), 'vector')}")
        return Exit.DIVERGES
    changed = [
        file
        for file, (document, _) in zip(files, documents, strict=True)
        if _write_if_changed(top / file.kind / f"{file.name}.json", format_document(document))
    ]
    for file in changed:
        print(file.path)
    print(f"{number_of(len(files), 'file')}, {len(changed)} written")
    return Exit.CONFORMS


def _list(arguments: Namespace) -> int:
    del arguments
    vectors = {file.path.removesuffix(".json"): file.vectors for file in read_folder(golden.root(), KINDS)}
    for name in golden.golden_file_ids():
        for line in [vector.id for vector in vectors[name]] if name in vectors else [name]:
            print(line)
    return Exit.CONFORMS


def _copy(arguments: Namespace) -> int:
    source, target = golden.root(), Path(arguments.folder)
    try:
        if isinstance(source, Path) and target.resolve().is_relative_to(source.resolve()):
            raise UsageError(f"invalid DIR: expected a folder outside the golden data, got {target}")
        target.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"{target}: {problem.strerror}") from None
    except RuntimeError:  # of `Path.resolve`, before Python 3.13
        raise UsageError(f"{target}: {os.strerror(errno.ELOOP)}") from None
    if any(target.iterdir()):
        raise UsageError(f"invalid DIR: expected a new or empty folder, got {target}")
    print(f"{number_of(_copy_files(source, target), 'file')} copied to {target}")
    return Exit.CONFORMS


_ACTIONS: Mapping[str, Callable[[Namespace], int]] = {
    "check": _check,
    "write": _write,
    "list": _list,
    "copy": _copy,
    "run": golden_run.run,
    "compare": golden_run.compare,
}


def _print_counts(
    files: Sequence[VectorFile],
    implementations: Sequence[Implementation | UnavailableImplementation],
    comparison: agreement.AgreementReport,
) -> None:
    for kind in KINDS:
        own = [file for file in files if file.kind == kind]
        if not own:
            continue
        print(f"{kind}: {number_of(sum(len(file.vectors) for file in own), 'vector')} in {number_of(len(own), 'file')}")
        for one in implementations:
            if isinstance(one, Implementation) and kind in one.answers:
                differed = comparison.noted_difference_counts[one.name, kind]
                noted = f", {differed} differ as noted in the vectors" if differed else ""
                print(f"  {one.name} {one.version}: {comparison.agreement_counts[one.name, kind]} as expected{noted}")
    for one in implementations:
        if isinstance(one, UnavailableImplementation):
            print(f"{one.name} not run: {one.reason}")


def _write_if_changed(file: Path, content: str) -> bool:
    """Write the file if its content differs. Return True if it was written."""
    data = content.encode()
    if file.read_bytes() == data:
        return False
    try:
        file.write_bytes(data)
    except OSError as problem:
        raise InvalidVectorsError(f"{file}: cannot write: {problem.strerror}") from None
    return True


def _copy_files(source: Path | Traversable, target: Path) -> int:
    """Copy a folder recursively and return the number of files."""
    count = 0
    for entry in source.iterdir():
        if entry.is_dir():
            (target / entry.name).mkdir()
            count += _copy_files(entry, target / entry.name)
        else:
            (target / entry.name).write_bytes(entry.read_bytes())
            count += 1
    return count
