"""The tasks of side_by_side.py, for pytest-benchmark: `.venv/bin/python -m pytest benchmarks`."""

import importlib
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import workloads

from harmony_ref import tokens
from harmony_ref.tokenizer import vocabulary

LARGEST = 10_000


@pytest.fixture(scope="session")
def tasks(tmp_path_factory):
    """The tasks of a contender, made when they are first asked for."""
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "o200k_base.tiktoken").write_bytes(vocabulary.read_vocabulary_file())
    encoding = tokens.encoding()
    inputs = workloads.inputs(encoding.encode_ordinary, encoding.decode, largest=LARGEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        yield cache(lambda contender: importlib.import_module(f"contenders.{contender}").tasks(inputs))


@pytest.fixture
def measured(benchmark, tasks):
    """Measures a task of a contender, grouped by task."""

    def measure(contender, task):
        benchmark.group = task
        benchmark(tasks(contender)[task])

    return measure
