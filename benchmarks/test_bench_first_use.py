import os
import subprocess
import sys
from pathlib import Path

import pytest
from side_by_side import SHA1_OF_URL

from harmony_ref.tokenizer import vocabulary

SCRIPT = Path(__file__).parent / "first_use.py"


@pytest.mark.parametrize("contender", ["ours", "compat", "bare", "library"])
def test_first_use(benchmark, tmp_path, contender):
    """Of a whole process, Python's own start included."""
    for name in ("o200k_base.tiktoken", SHA1_OF_URL):
        (tmp_path / name).write_bytes(vocabulary.read_vocabulary_file())
    places = {"TIKTOKEN_ENCODINGS_BASE": str(tmp_path), "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(SCRIPT), contender]
    benchmark.group = "first use"
    benchmark.pedantic(
        lambda: subprocess.run(command, env={**os.environ, **places}, check=True, capture_output=True), rounds=5
    )
