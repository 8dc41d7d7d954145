import re
import subprocess
import sys
from pathlib import Path

import pytest

import harmony_ref


def test_every_exported_name_exists():
    assert [name for name in harmony_ref.__all__ if not hasattr(harmony_ref, name)] == []
    assert sorted(harmony_ref.__all__) == sorted(set(harmony_ref.__all__))


def test_importing_the_package_does_not_load_the_vocabulary():
    code = (
        "import harmony_ref; from harmony_ref.tokenizer import tokens, vocabulary;"
        "print(vocabulary.ranks.cache_info().currsize, tokens.encoding.cache_info().currsize)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["0", "0"]


README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE))
def test_examples_of_the_readme_run(block, capsys):
    message = harmony_ref.Message(author=harmony_ref.Role.USER, content="Hi")
    completion = harmony_ref.encode_with_special_tokens("<|channel|>final<|message|>Hello!<|return|>")
    names = {
        "completion": completion,
        "new_ids": completion,
        "prompt_ids": harmony_ref.render_conversation_for_completion([message]),
        "conversation": [message],
        "messages": [message],
        "message": message,
    }
    exec(compile(block, "README.md", "exec"), names)
    if "explain(" in block:
        assert "harmony" in capsys.readouterr().out
