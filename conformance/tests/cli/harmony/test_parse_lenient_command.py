import json
from argparse import ArgumentParser

import pytest

from harmony_conformance.cli.harmony import parse
from harmony_conformance.cli.options.harmony import configure_parse
from harmony_conformance.errors import Exit, UsageError

FINAL = "<|channel|>final<|message|>4<|return|>"


@pytest.fixture
def call(tmp_path):
    def run(content, *options):
        path = tmp_path / "input"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        parser = ArgumentParser()
        configure_parse(parser)
        return parse.execute(parser.parse_args([str(path), *options]))

    return run


ANSWER = {"role": "assistant", "content": "4", "channel": "final"}


@pytest.mark.parametrize(
    ("content", "remainder", "errors"),
    [
        pytest.param(FINAL, None, [], id="Harmony"),
        pytest.param(
            f"{FINAL}<|return|>",
            None,
            [
                {
                    "rule": "junk between messages",
                    "position": 5,
                    "span": [5, 6],
                    "text": "<|return|>",
                    "state": "ExpectStart",
                    "message": "junk between messages: '<|return|>'; expected <|start|>",
                    "expected": "<|start|>",
                }
            ],
            id="a doubled stop token",
        ),
        pytest.param(
            f"{FINAL}<|start|>assistant<|channel|>commentary to=functions.f<|message|>{{",
            {
                "state": "Content",
                "header": {"role": "assistant", "recipient": "functions.f", "channel": "commentary"},
                "text": "{",
                "tokens": [200006, 173781, 200005, 12606, 815, 316, 28, 44580, 1196, 200008, 90],
                "position": 5,
            },
            [],
            id="a message without its end",
        ),
        pytest.param(
            f"{FINAL}<|start|>",
            {"state": "Header", "header": {}, "text": "", "tokens": [200006], "position": 5},
            [
                {
                    "rule": "cut header",
                    "position": 6,
                    "span": [5, 6],
                    "text": "<|start|>",
                    "state": "Header",
                    "message": "cut header; expected <|message|>",
                    "expected": "<|message|>",
                }
            ],
            id="a header that is cut off",
        ),
        pytest.param(
            [200005, 17196, 200008, 19, 200002, 999999999, -1],
            None,
            [
                {
                    "rule": "junk between messages",
                    "position": 5,
                    "span": [5, 7],
                    "text": "\ufffd\ufffd",
                    "state": "ExpectStart",
                    "message": "junk between messages: '\ufffd\ufffd'; expected <|start|>",
                    "expected": "<|start|>",
                }
            ],
            id="ids that are none",
        ),
    ],
)
def test_everything_that_can_be_made_of_it_is_printed(call, capsys, content, remainder, errors):
    code = call(content, "--lenient", "--role", "assistant")
    assert code == (Exit.DIVERGES if errors else Exit.CONFORMS)
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"messages": [ANSWER], "remainder": remainder, "errors": errors}


def test_the_text_that_belongs_to_no_message_is_printed_whole(call, capsys):
    junk = "no " * 100
    call(f"{FINAL}{junk}", "--lenient", "--role", "assistant")
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["text"] == junk
    assert len(error["message"]) < 100


def test_what_strict_parsing_refuses_is_said_to_be_readable_leniently(call, capsys):
    with pytest.raises(UsageError, match=r"invalid Harmony: Unexpected token 200002 .*; --lenient prints") as raised:
        call(f"{FINAL}<|return|>", "--role", "assistant")
    assert "\n" not in str(raised.value)
    assert call(f"{FINAL}<|return|>", "--role", "assistant", "--lenient") == Exit.DIVERGES
    assert json.loads(capsys.readouterr().out)["messages"] == [ANSWER]


def test_without_an_error_both_ways_print_the_same_messages(call, capsys):
    call(FINAL, "--role", "assistant")
    strict = json.loads(capsys.readouterr().out)
    call(FINAL, "--role", "assistant", "--lenient")
    assert json.loads(capsys.readouterr().out) == {**strict, "remainder": None, "errors": []}
