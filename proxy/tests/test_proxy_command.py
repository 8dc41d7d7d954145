import importlib.util
import re
import socket
import subprocess
import sys
from argparse import ArgumentParser

import pytest

from harmony_conformance.errors import UsageError
from harmony_proxy.command import COMMAND
from harmony_ref.extras import install_command

HERE = ["--upstream", "http://host", "--listen", "127.0.0.1:0"]


def proxy(*arguments):
    parser = ArgumentParser()
    COMMAND.configure(parser)
    return COMMAND.run(parser.parse_args(["--mitmproxy", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--upstream", "nonsense"], "--upstream: invalid target 'nonsense'"),
        (["--upstream", "reference"], "invalid --upstream: expected the URL of a server"),
        (["--upstream", "replay:file"], "invalid --upstream: expected the URL of a server"),
        (["--upstream", "http://u:p@host"], "expected no user or password"),
        (["--upstream", "http://host", "--listen", "8090"], "--listen: invalid address: expected HOST:PORT"),
        (["--upstream", "http://host", "--listen", "localhost:99999"], "expected HOST:PORT"),
        (["--upstream", "http://host", "--listen", ":80"], "expected HOST:PORT"),
        ([*HERE, "--fail", "closed"], "--fail closed requires --repair or --block"),
        ([*HERE, "--block", "*", "--fallback", "block"], "--fallback block requires --repair"),
        ([*HERE, "--reasoning-field", "reasoning"], "--reasoning-field requires --repair or --block"),
        ([*HERE, "--metrics", "9464"], "--metrics: invalid address: expected HOST:PORT"),
        ([*HERE, "--drain", "5"], "--drain cannot be combined with --mitmproxy"),
        ([*HERE, "--policy", "x", "--fail", "closed"], "--fail closed requires --repair or --block; with --policy"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(arguments, said):
    with pytest.raises(UsageError) as raised:
        proxy(*arguments)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("shell", [[], ["--mitmproxy"]], ids=["standalone", "mitmproxy"])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "FAIL",
            "xx",
            "HARMONY_GUARD_* in the environment: policy: invalid fail: expected one of 'open', 'closed', got 'xx'",
        ),
        ("PRIORITY", "high", "invalid HARMONY_GUARD_PRIORITY: expected one of low, normal, got 'high'"),
        ("CAPTURE", "all", "invalid HARMONY_GUARD_CAPTURE: expected one of redacted, full, none, got 'all'"),
        (
            "METRICS",
            "9464",
            "HARMONY_GUARD_METRICS in the environment: invalid address: expected HOST:PORT such as 127.0.0.1:8090, got '9464'",
        ),
        ("OTEL", "4318", "HARMONY_GUARD_OTEL in the environment: invalid receiver: expected the URL of an OTLP/HTTP"),
        ("MEMORY_LIMIT", "1K", "HARMONY_GUARD_* in the environment: invalid memory_limit: expected at least 16M"),
        ("PRIORTY", "low", "invalid environment variable HARMONY_GUARD_PRIORTY: expected one of HARMONY_GUARD_POLICY"),
    ],
)
def test_a_setting_of_the_environment_that_cannot_be_is_said_in_one_line(monkeypatch, shell, name, value, said):
    monkeypatch.setenv(f"HARMONY_GUARD_{name}", value)
    parser = ArgumentParser()
    COMMAND.configure(parser)
    with pytest.raises(UsageError) as raised:
        COMMAND.run(parser.parse_args([*HERE, *shell]))
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("drain", ["-1", "nan", "inf", "soon"])
def test_seconds_to_drain_are_a_number_from_0(drain, capsys):
    with pytest.raises(SystemExit):
        proxy(*HERE, f"--drain={drain}")
    assert f"expected a number of seconds >= 0, got {drain!r}" in capsys.readouterr().err


def test_a_policy_that_is_no_text_is_said_to_be_none(tmp_path):
    (file := tmp_path / "policy.toml").write_bytes(b"fail\xff")
    with pytest.raises(UsageError, match=r"policy\.toml: invalid UTF-8 at byte 4"):
        proxy(*HERE, "--policy", str(file))


def test_a_port_that_is_taken_is_said_to_be():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="cannot listen on"):
        proxy("--upstream", "http://127.0.0.1:9", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")


def test_without_mitmproxy_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=re.escape(install_command("mitmproxy"))):
        proxy(*HERE)


def test_the_command_is_known_without_importing_mitmproxy():
    code = "import harmony_proxy.cli, sys; sys.exit(any(name.partition('.')[0] == 'mitmproxy' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_checks_to_act_on_can_be_named_together_and_one_by_one():
    parser = ArgumentParser()
    COMMAND.configure(parser)
    told = parser.parse_args(
        ["--upstream", "reference", "--repair", "a", "b", "--repair", "c", "--block", "d", "--block", "e"]
    )
    assert (told.repair, told.block) == (["a", "b", "c"], ["d", "e"])
