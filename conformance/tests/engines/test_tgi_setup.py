"""The shard of `engines/tgi`: what it generates for a prompt, token by token, and what it says under a grammar."""

import os
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from harmony_conformance.engines.teleprompter.script import write_script
from harmony_ref import decode, encode_with_special_tokens, tokens

SETUP = Path(__file__).parents[3] / "engines" / "tgi"
if not SETUP.is_dir():
    pytest.skip("the archive of the sources has no setups", allow_module_level=True)
SHARD = runpy.run_path(str(SETUP / "generation.py"))
LENGTH, EOS_TOKEN, STOP_SEQUENCE = SHARD["LENGTH"], SHARD["EOS_TOKEN"], SHARD["STOP_SEQUENCE"]
FINAL = "<|channel|>final<|message|>One, two 🍕.<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
TOOL_PROMPT = "\n---\n\nGiven the functions available, please respond with a JSON."


class Tokens:
    """The tokenizer, as the shard needs it."""

    def encode(self, text, *, add_special_tokens=False):
        return encode_with_special_tokens(text)

    def decode(self, ids, *, skip_special_tokens=False):
        kept = [token for token in ids if not (skip_special_tokens and tokens.is_special(token))]
        return b"".join(tokens.decode_bytes([token]) for token in kept).decode("utf-8", "replace")

    def is_special(self, token):
        return tokens.is_special(token)


def prompt(markup, after=""):
    script = write_script(encode_with_special_tokens(markup))
    return encode_with_special_tokens(f"<|start|>user<|message|>Hi.{script}{after}<|end|><|start|>assistant")


def steps(markup, **options):
    running = SHARD["Running"](**{"tokenizer": Tokens(), "prompt": prompt(markup), "limit": 100, **options})
    found = [running.step()]
    while found[-1].end is None:
        found.append(running.step())
    return found


def test_script_is_played_and_its_text_has_no_special_tokens():
    found = steps(FINAL)
    assert decode([step.token for step in found]) == FINAL
    assert "".join(step.text for step in found if not step.is_special) == "finalOne, two 🍕."
    assert found[-1].end == ("finalOne, two 🍕.", EOS_TOKEN)


def test_character_of_several_tokens_is_the_text_of_its_last_one():
    found = steps(FINAL)
    assert [step.text for step in found if "🍕" in step.text or not step.text] == ["", " 🍕"]


@pytest.mark.parametrize(
    ("options", "text", "reason"),
    [
        ({"limit": 4}, "finalOne", LENGTH),
        ({"limit": len(encode_with_special_tokens(FINAL))}, "finalOne, two 🍕.", LENGTH),
        ({"stop_strings": ["two"]}, "finalOne, two", STOP_SEQUENCE),
        ({"stop_strings": ["wo "]}, "finalOne, two 🍕.", EOS_TOKEN),
    ],
    ids=str,
)
def test_ends(options, text, reason):
    assert steps(FINAL, **options)[-1].end == (text, reason)


def test_stop_token_is_ignored_on_request():
    assert len(steps(FINAL, ignores_stop_ids=True, limit=40)) == 40


def test_grammar_takes_the_place_of_the_script():
    found = steps(FINAL, forced=[*encode_with_special_tokens("{}"), tokens.RETURN])
    assert found[-1].end == ("{}", EOS_TOKEN)


@pytest.mark.parametrize("after", ["", TOOL_PROMPT])
def test_script_is_found_wherever_it_is(after):
    assert decode(SHARD["find_script"](prompt(CALL, after))) == CALL


def test_prompt_without_a_script_has_none():
    assert SHARD["find_script"](encode_with_special_tokens("<|start|>user<|message|>Hi<|end|><|start|>assistant")) == []


@pytest.mark.parametrize(
    ("markup", "texts"),
    [
        (CALL, ['{"function": {"_name": "f", "a": 1}}']),
        (CALL.replace('{"a": 1}', "{}"), ['{"function": {"_name": "f"}}']),
        (FINAL, ["One, two 🍕.", '{"function": {"_name": "no_tool"}}']),
    ],
    ids=["a call", "a call without arguments", "an answer"],
)
def test_words_of_a_script_under_a_grammar(markup, texts):
    assert [*SHARD["wanted_texts"](prompt(markup, TOOL_PROMPT))] == texts


@pytest.mark.parametrize("router", [None, "elsewhere/router"])
def test_a_server_without_a_router_says_so_before_anything_is_started(router, tmp_path):
    script = tmp_path / "engines" / "tgi" / "serve.sh"
    script.parent.mkdir(parents=True)
    (tmp_path / ".engines" / "tgi").mkdir(parents=True)
    shutil.copy(SETUP / "serve.sh", script)
    own = {name: value for name, value in os.environ.items() if name != "TGI_ROUTER"}
    environment = {**own, "TGI_ROUTER": router} if router else own
    done = subprocess.run([script], env=environment, capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"engine-tgi: no router: expected a program, got {router or './router'}; set TGI_ROUTER")
    assert done.returncode == 2
