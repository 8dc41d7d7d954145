import subprocess
import sys
import tomllib

import pytest

from harmony_proxy.configuration import InvalidSettingError, Rules, from_environment, load_rules, parse_address
from harmony_proxy.policy.policy import Action, FailMode, InvalidPolicyError, flag_policy, read_policy

MUSTS = frozenset({"channels.a", "channels.b", "tools.c"})
CAN = frozenset({"channels.a", "tools.c"})


def policy(document):
    return read_policy(tomllib.loads(document), musts=MUSTS, repairable=CAN)


def actions(document, path="/v1/chat/completions"):
    return dict(policy(document).route(path).actions)


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ("", {}),
        ('checks = {"channels.a" = "repair"}', {"channels.a": Action.REPAIR}),
        ('checks = {"channels.*" = "repair"}', {"channels.a": Action.REPAIR}),
        ('checks = {"*" = "block", "tools.c" = "observe"}', dict.fromkeys(["channels.a", "channels.b"], Action.BLOCK)),
        ('checks = {"*" = "observe", "tools.*" = "repair"}', {"tools.c": Action.REPAIR}),
    ],
    ids=["nothing", "a check", "of many those with a repair", "the longest pattern counts", "the other way round"],
)
def test_rules_name_checks_by_pattern(document, wanted):
    assert actions(document) == wanted


@pytest.mark.parametrize(
    ("said", "fail", "fallback"),
    [
        ("", FailMode.CLOSED, Action.BLOCK),
        ('fail = "open"\nfallback = "observe"\n', FailMode.OPEN, Action.OBSERVE),
    ],
    ids=["as above it", "what it says itself"],
)
def test_the_first_route_that_fits_counts(said, fail, fallback):
    made = policy(
        'fail = "closed"\nfallback = "block"\nchecks = {"*" = "block"}\n[[route]]\npath = "*/completions"\n'
        f'checks = {{"tools.c" = "repair"}}\n{said}'
    )
    chat, other = made.route("/v1/chat/completions"), made.route("/v1/responses")
    assert (dict(chat.actions), chat.fail, chat.fallback) == ({"tools.c": Action.REPAIR}, fail, fallback)
    assert (set(other.actions), other.fail, other.fallback) == (MUSTS, FailMode.CLOSED, Action.BLOCK)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            'checks = {"nonsense" = "block"}',
            "invalid check: expected a MUST check (see `harmony-conformance checks`), got 'nonsense'",
        ),
        ('checks = {"channels.b" = "repair"}', "expected a repairable check (channels.a, tools.c), got 'channels.b'"),
        ('checks = {"channels.a" = "mend"}', "expected one of 'observe', 'repair', 'block', got 'mend'"),
        ('fail = "sometimes"', "invalid fail: expected one of 'open', 'closed', got 'sometimes'"),
        ('fallback = "repair"', "'observe' or 'block'"),
        ("cheks = {}", "invalid name: expected one of fail, fallback"),
        ("[[route]]\npath = 3", "route 1: invalid path: expected a pattern"),
        ('checks = "block"', 'expected a table ("channels.no_marker_leak" = "repair"), got \'block\''),
        ('[[route]]\nchecks = ["channels.a"]', "route 1, checks: invalid value: expected a table"),
        ('[checks]\nchannels.a = "block"', "policy: invalid check channels: expected a check id in quotation marks"),
        (
            '[route]\npath = "*"\nchecks = {"*" = "block"}',
            "invalid route: expected tables that each begin with [[route]]",
        ),
        ('route = "*"', "each begin with [[route]]"),
        ("route = [1]", "route 1: invalid value: expected a table"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(document, said):
    with pytest.raises(InvalidPolicyError) as raised:
        policy(document)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_flags_are_a_policy_too():
    made = flag_policy(["channels.*"], ["channels.b"], "closed", musts=MUSTS, repairable=CAN).route("/")
    assert dict(made.actions) == {"channels.a": Action.REPAIR, "channels.b": Action.BLOCK}
    assert (made.fail, made.fallback) == (FailMode.CLOSED, Action.OBSERVE)
    made = flag_policy(["channels.*"], [], "open", "block", musts=MUSTS, repairable=CAN).route("/")
    assert (made.fail, made.fallback) == (FailMode.OPEN, Action.BLOCK)


def test_the_environment_says_what_is_done_where_a_repair_cannot():
    told = from_environment({"HARMONY_GUARD_REPAIR": "channels.*", "HARMONY_GUARD_FALLBACK": "block"}).rules
    assert told.policy.route("/v1/chat/completions").fallback is Action.BLOCK
    told = load_rules(repair=["channels.*"], fallback="block")
    assert told.policy.route("/v1/chat/completions").fallback is Action.BLOCK


def test_without_settings_everything_is_observed_and_nothing_written():
    told = from_environment({})
    assert (told.rules, told.judging.log, told.judging.excerpts, told.metrics) == (Rules(), None, "none", None)
    assert told.rules.policy.observes


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("EXCERPTS", "all", "invalid HARMONY_GUARD_EXCERPTS: expected one of redacted, full, none, got 'all'"),
        ("FAIL", "sometimes", "sometimes"),
        ("FALLBACK", "repair", "'observe' or 'block'"),
        ("METRICS", f"127.0.0.1:{'9' * 5000}", "expected HOST:PORT"),
        ("METRICS", "9090", "expected HOST:PORT such as 127.0.0.1:8090, got '9090'"),
        ("POLICY", "/no/such/file", "/no/such/file: No such file or directory"),
        ("PRIORITY", "high", "expected one of low, normal, got 'high'"),
    ],
)
def test_a_setting_that_cannot_be_is_named(name, value, said):
    with pytest.raises(InvalidSettingError) as raised:
        from_environment({f"HARMONY_GUARD_{name}": value})
    assert said in str(raised.value)


def test_metrics_require_their_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InvalidSettingError, match="prometheus_client is not installed: pip install"):
        from_environment({"HARMONY_GUARD_METRICS": "127.0.0.1:9464"})


def test_an_empty_variable_is_one_that_is_not_set():
    names = ("FAIL", "FALLBACK", "PRIORITY", "ENGINE", "METRICS", "POLICY")
    assert from_environment({f"HARMONY_GUARD_{name}": "" for name in names}) == from_environment({})


@pytest.mark.parametrize("policy", [False, True], ids=["alone", "with a policy file"])
@pytest.mark.parametrize(("name", "value"), [("FAIL", "closed"), ("FALLBACK", "block"), ("REASONING_FIELD", "x")])
def test_a_setting_without_an_effect_is_refused(name, value, policy, tmp_path):
    (file := tmp_path / "policy.toml").write_text('[checks]\n"channels.*" = "repair"\n', encoding="utf-8")
    more = {"HARMONY_GUARD_POLICY": str(file)} if policy else {}
    with pytest.raises(InvalidSettingError) as raised:
        from_environment({f"HARMONY_GUARD_{name}": value, **more})
    assert f"{name.lower()} '{value}' requires checks to repair" in str(raised.value)
    assert ("set it in that file" in str(raised.value)) is policy


@pytest.mark.parametrize(("name", "meant"), [("REPIAR", "REPAIR"), ("METRIC", "METRICS"), ("XYZ", "")])
def test_a_misspelt_variable_is_refused(name, meant):
    with pytest.raises(InvalidSettingError) as raised:
        from_environment({f"HARMONY_GUARD_{name}": "x"})
    message = str(raised.value)
    assert message.startswith(
        f"invalid environment variable HARMONY_GUARD_{name}: expected one of HARMONY_GUARD_POLICY,"
    )
    assert message.endswith(f"; did you mean HARMONY_GUARD_{meant}?" if meant else "HARMONY_GUARD_PRIORITY")


def test_variables_of_a_kubernetes_service_of_that_name_are_no_settings():
    service = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8090_TCP", "PORT_8090_TCP_ADDR")
    told = from_environment({f"HARMONY_GUARD_{name}": "10.0.0.1" for name in service})
    assert told.rules == Rules()


def test_a_file_that_is_no_toml_is_said_to_be_none(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text("checks = ", encoding="utf-8")
    with pytest.raises(InvalidSettingError, match=r"policy\.toml: "):
        load_rules(file)
    with pytest.raises(InvalidSettingError, match="a policy file cannot be combined"):
        load_rules(file, block=["*"])


def test_a_policy_of_an_editor_on_windows_is_read(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_bytes(b'\xef\xbb\xbfmemory_limit = "64M"\r\n')
    assert load_rules(file).memory_limit == 64 * 2**20
    file.write_bytes(b"x = " + b"[" * 100_000)
    with pytest.raises(InvalidSettingError, match=r"policy\.toml: invalid TOML: nested too deeply"):
        load_rules(file)


@pytest.mark.parametrize("name", ["3", '"thoughts"', '""', "false"])
def test_the_reasoning_has_one_of_the_names_that_clients_know(tmp_path, name):
    file = tmp_path / "policy.toml"
    file.write_text(f"reasoning_field = {name}\n", encoding="utf-8")
    with pytest.raises(InvalidSettingError, match="expected one of 'reasoning', 'reasoning_content', 'thinking'"):
        load_rules(file)


def test_addresses_have_a_port():
    assert parse_address("[::1]:80") == ("::1", 80)


@pytest.mark.parametrize(("block", "loaded"), [("'channels.*'", 1), ("", 0)])
def test_the_vocabulary_is_loaded_with_a_policy_that_acts_and_not_within_its_first_answer(block, loaded):
    script = (
        f"from harmony_proxy.configuration import load_rules; load_rules(block=[{block}]);"
        "from harmony_ref.tokenizer.tokens import encoding; print(encoding.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == str(loaded)


@pytest.mark.parametrize(
    ("document", "summary"),
    [
        ({}, "every check is observed"),
        ({"checks": {"channels.no_marker_leak": "repair"}}, "checks repaired: 1, fail = open"),
        (
            {
                "fail": "closed",
                "checks": {"channels.no_marker_leak": "block"},
                "route": [{"path": "/a", "fail": "open", "checks": {"channels.no_marker_leak": "block"}}],
            },
            "checks blocked: 1, fail = closed or open",
        ),
    ],
)
def test_a_summary_has_what_acts(document, summary):
    assert (
        read_policy(document, musts=["channels.no_marker_leak"], repairable=["channels.no_marker_leak"]).summary()
        == summary
    )
