"""`engines/parsers/`: the output of the scripted engines, and the setups that are stored."""

import json
import re
import runpy
from pathlib import Path

import pytest

from harmony_conformance.engines.teleprompter.script import write_script
from harmony_ref import decode, encode_with_special_tokens

ROOT = Path(__file__).parents[3]
PARSERS = ROOT / "engines" / "parsers"
pytestmark = pytest.mark.skipif(not PARSERS.is_dir(), reason="the installed package has no setups")
SCRIPT = "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>hi<|return|>"


def output(text, limit):
    prompt = encode_with_special_tokens(f"<|start|>user<|message|>{text}<|end|><|start|>assistant")
    return decode(runpy.run_path(str(PARSERS / "scripted_output.py"))["output_of"](prompt, limit))


@pytest.mark.parametrize(("limit", "expected"), [(50, SCRIPT), (4, "<|channel|>analysis<|message|>Think")])
def test_the_script_of_a_prompt_is_played_up_to_its_end_or_the_limit(limit, expected):
    assert output(f"Hi.{write_script(encode_with_special_tokens(SCRIPT))}", limit) == expected


@pytest.mark.parametrize("text", ["Hi.", "Hi. " * 300], ids=["short", "longer than the way back to a script"])
@pytest.mark.parametrize(
    ("limit", "expected"), [(50, "<|channel|>final<|message|>Hello.<|return|>"), (1, "<|channel|>")]
)
def test_a_prompt_without_a_script_is_answered_with_a_greeting(limit, expected, text):
    assert output(text, limit) == expected


def test_each_setup_can_be_built_served_and_judged_again():
    setups = dict(
        re.findall(r"^  ([a-z-]+)\) .*RELEASE='([^']+)'", (PARSERS / "run.sh").read_text("utf-8"), re.MULTILINE)
    )
    stored = runpy.run_path(str(ROOT / "tools" / "rejudge_reports.py"))["REPORT_RUNS"]
    assert {release.replace(" ", "-parsers-") for release in setups.values()} <= set(stored)
    for setup, release in setups.items():
        assert stored[release.replace(" ", "-parsers-")][0] == release
        assert {"setup.sh", "serve.sh", "requirements.lock", "overrides.txt"} <= {
            file.name for file in (PARSERS / setup).iterdir()
        }
        assert f"engine-parsers-{setup}" in (ROOT / "Makefile").read_text("utf-8")
        causes = json.loads((ROOT / "golden" / "causes" / f"{release.split()[0]}.json").read_text("utf-8"))
        assert causes["engine"] == release.split()[0]


def test_locks_have_hashes_and_no_address():
    for lock in PARSERS.glob("*/*.lock"):
        text = lock.read_text("utf-8")
        pins = re.findall(r"^[A-Za-z0-9._-]+(?:\[[^]]*\])?==[^ ]+ (.*)$", text, re.MULTILINE)
        assert pins, lock
        assert all(rest.endswith("\\") or "--hash" in rest for rest in pins), lock
        assert "://" not in text, lock
