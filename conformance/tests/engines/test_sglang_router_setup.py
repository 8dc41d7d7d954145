"""`engines/sglang-router/`: the output of its scripted worker, and the setup that is stored."""

import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

from harmony_conformance.engines.teleprompter.script import write_script
from harmony_ref import decode, encode_with_special_tokens, tokens

ROOT = Path(__file__).parents[3]
SETUP = ROOT / "engines" / "sglang-router"
pytestmark = pytest.mark.skipif(not SETUP.is_dir(), reason="the installed package has no setups")
SCRIPT = "<|channel|>final<|message|>One, two, three.<|return|>"


@pytest.fixture
def generation(monkeypatch):
    for folder in (SETUP, ROOT / "engines" / "parsers"):
        monkeypatch.syspath_prepend(str(folder))
    for name in ("generation", "scripted_output"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("generation")
    for name in ("generation", "scripted_output"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("stops", "expected", "matched"),
    [
        ({}, SCRIPT, tokens.RETURN),
        ({"limit": 4}, "<|channel|>final<|message|>One", None),
        ({"strings": ("two",)}, "<|channel|>final<|message|>One, two", "two"),
        ({"strings": (", t", "One")}, "<|channel|>final<|message|>One", "One"),
        ({"strings": ("four",)}, SCRIPT, tokens.RETURN),
        ({"ids": (tokens.MESSAGE,)}, "<|channel|>final<|message|>", tokens.MESSAGE),
        ({"ids": (tokens.MESSAGE,), "ignores_ids": True}, SCRIPT, None),
    ],
    ids=["stop token", "limit", "stop string", "first stop string", "no such string", "stop id", "stop ids ignored"],
)
def test_the_script_is_played_up_to_what_ends_it(generation, stops, expected, matched):
    text = f"Count.{write_script(encode_with_special_tokens(SCRIPT))}"
    prompt = encode_with_special_tokens(f"<|start|>user<|message|>{text}<|end|><|start|>assistant")
    output = generation.generate(prompt, generation.Stops(**stops))
    assert (decode(output.ids), output.matched) == (expected, matched)
    assert [one for step in output.steps(3) for one in step] == list(output.ids)


def test_each_release_can_be_built_and_judged_again():
    stored = runpy.run_path(str(ROOT / "tools" / "rejudge_reports.py"))["REPORT_RUNS"]
    for lock in SETUP.glob("*.lock"):
        name, version = lock.stem.rsplit("-", 1)
        assert stored[lock.stem][0] == f"smg {version}"
        assert re.search(rf"^{re.escape(name)}=={re.escape(version)} ", lock.read_text("utf-8"), re.MULTILINE)
    assert "engine-sglang-router" in (ROOT / "Makefile").read_text("utf-8")
