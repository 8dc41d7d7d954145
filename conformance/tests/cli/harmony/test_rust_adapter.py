"""The adapter in Rust of `examples/`: it conforms, and two builds of it are compared by the causes that differ."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harmony_conformance.cli.main import main

EXAMPLE = Path(__file__).parents[4] / "examples" / "adapters" / "rust"
UNREACHABLE = re.compile("download|resolve host|network|connect|timed out|spurious", re.IGNORECASE)
READS_RECIPIENTS = 'read.insert("recipient".into(), json!(recipient.strip_prefix("to=").unwrap_or(recipient)));'


@pytest.fixture(scope="module")
def build(request):
    """Builds the adapter, from the source that a function returns for that of the example."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    cache = request.config.cache.mkdir(
        "rust-build"
    )  # shared with the runner of golden/README.md, whose dependencies are the same

    def built(folder, change=str):
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
        main_file = folder / "src" / "main.rs"
        main_file.write_text(change(main_file.read_text("utf-8")), "utf-8")
        environment = {**os.environ, "CARGO_TARGET_DIR": str(cache), "CARGO_TERM_COLOR": "never"}
        for offline in (["--offline"], []):  # what was downloaded before is used without a look at the registry
            command = ["cargo", "build", "--quiet", *offline]
            ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                return shutil.copy(cache / "debug" / "adapter", folder)
        if UNREACHABLE.search(ran.stderr):
            pytest.skip(f"serde_json cannot be downloaded: {ran.stderr.splitlines()[-1].strip()}")
        return pytest.fail(ran.stderr)

    return built


@pytest.mark.slow
def test_it_conforms(build, tmp_path, capsys):
    assert main(["golden", "run", "--command", str(build(tmp_path / "base"))]) == 0
    assert re.search(r"^parse +184 passed, 107 unsupported$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.slow
def test_a_build_that_loses_recipients_is_named_by_its_cause(build, tmp_path, capsys):
    def without_recipients(source):
        assert source.count(READS_RECIPIENTS) == 1
        return source.replace(READS_RECIPIENTS, "let _ = recipient;")

    base, head = build(tmp_path / "base"), build(tmp_path / "head", without_recipients)
    assert main(["golden", "compare", "--base", str(base), "--head", str(head), "--kind", "parse"]) == 1
    report = capsys.readouterr().out
    assert re.search(r"^NEW \d+ vectors \(parse\): the recipient of a message is lost$", report, re.MULTILINE)
    assert report.count("NEW") == 1
    assert "SAME" not in report
