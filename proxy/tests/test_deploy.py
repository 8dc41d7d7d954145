"""The files in deploy/: every metric and label exists, every command is accepted, every probe has a path and a port of the proxy."""

import json
import re
import shlex
import socket
import tomllib
from argparse import ArgumentParser
from pathlib import Path

import httpx
import pytest
import yaml

pytest.importorskip("prometheus_client")

from harmony_conformance.apis.registry import APIS
from harmony_conformance.checks import CHECKS
from harmony_proxy import cli, options
from harmony_proxy.capture.recorder import ENDS
from harmony_proxy.configuration import load_rules, parse_address
from harmony_proxy.judging.counters import Gauges, Tally
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.metrics import serve_metrics
from harmony_proxy.standalone.upstream import HEALTH, READY

DEPLOY = Path(__file__).parents[2] / "deploy"
PAGE = (DEPLOY.parent / "docs" / "deployment.md").read_text("utf-8")
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
MANIFESTS = {
    one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "sidecar.yaml").read_text("utf-8"))
}
POD = MANIFESTS["Deployment"]["spec"]["template"]
(SIDECAR,) = [one for one in POD["spec"]["containers"] if one["name"] == "harmony-proxy"]
QUERIES = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
]
NAME = re.compile(r"\bharmony_guard_\w+")
SELECTOR = re.compile(r"\b(harmony_guard_\w+)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')
OF_PROMETHEUS = {"job", "instance", "le"}
COUNTS = {
    ("exchanges", "chat", "complete"): 1,
    ("unrecorded", "memory"): 1,
    ("verdicts", "channels.no_marker_leak", "fail"): 1,
    ("acted", "channels.no_marker_leak", "blocked"): 1,
    ("answers", "/chat/completions", "m", "stream", "blocked"): 1,
}
VALUES = {
    "check": {check.id for check in CHECKS},
    "outcome": {"pass", "fail", "variant", "error"},
    "what": {"repaired", "blocked", "left"},
    "end": {end.value for end in ENDS},
    "api": {*APIS, ""},
    "limit": {"size", "memory"},
    "verdict": {"blocked", "repaired", "error", "failed", "rejected", "passed", "unjudged"},
    "kind": {"stream", "whole"},
    "result": {"done", "failed"},
    "action": {"passed", "refused"},
}


@pytest.fixture(scope="module")
def exposed():
    """What /metrics of the proxy shows: the labels of each name."""
    queue = JudgeQueue(JudgeSettings())
    queue._counts = Tally(COUNTS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    stop = serve_metrics(("127.0.0.1", port), queue, Gauges())
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    stop()
    found = {}
    for name, labels in re.findall(r"^(harmony_guard_\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def test_there_are_queries():
    assert len(RULES) >= 8
    assert len(QUERIES) > 25


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_metrics_and_labels_that_exist(query, exposed):
    assert NAME.findall(query)
    assert set(NAME.findall(query)) <= set(exposed)
    for name, matchers in SELECTOR.findall(query):
        for label, operator, value in MATCHER.findall(matchers):
            assert label in exposed[name] | OF_PROMETHEUS
            if label not in OF_PROMETHEUS:
                pattern = value if operator == "=~" else re.escape(value)
                assert any(re.fullmatch(pattern, one) for one in VALUES[label]), (label, value)


@pytest.mark.parametrize("text", ["harmony_guard_answer_total", 'harmony_guard_answers_total{models="m"}'])
def test_a_name_that_does_not_exist_is_found(text, exposed):
    with pytest.raises(AssertionError):
        test_a_query_names_metrics_and_labels_that_exist(text, exposed)


def test_each_metric_of_the_proxy_is_on_the_dashboard(exposed):
    named = {name for query in QUERIES for name in NAME.findall(query)}
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exposed}
    assert not {family for family in families if not any(name.startswith(family) for name in named)}


def test_the_variables_of_the_dashboard_exist(exposed):
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"]))) - {"__rate_interval", "__range"}
    assert used == set(variables)
    queries = [one["definition"] for one in variables.values() if one["type"] == "query"]
    assert {name for query in queries for name in NAME.findall(query)} <= set(exposed)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def parse(arguments):
    parser = ArgumentParser(exit_on_error=False)
    options.configure(parser)
    return parser.parse_args(arguments)


def unit_command():
    text = (DEPLOY / "systemd" / "harmony-proxy.service").read_text("utf-8")
    return shlex.split(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1])


def commands():
    yield "sidecar", SIDECAR["args"]
    yield "unit", unit_command()[2:]
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n#", "")
    yield "Dockerfile", re.search(r"harmony-proxy (--upstream .*)$", dockerfile, re.MULTILINE)[1].split()
    for number, line in enumerate(re.findall(r"^harmony-conformance proxy (.*)$", PAGE, re.MULTILINE)):
        yield f"page {number}", shlex.split(re.split(r"[<>&]", line)[0])


@pytest.mark.parametrize(
    ("place", "arguments"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_command_is_accepted(place, arguments):
    found = parse(arguments)
    assert cli._upstream(found.upstream).base_url, place
    assert parse_address(found.listen)


def test_the_policy_of_the_config_map_is_valid_and_acts(tmp_path):
    found = parse(SIDECAR["args"])
    (file,) = MANIFESTS["ConfigMap"]["data"].items()
    mounts = {one["name"]: one["mountPath"] for one in SIDECAR["volumeMounts"]}
    (volume,) = [one["name"] for one in POD["spec"]["volumes"] if one.get("configMap") == {"name": "harmony-proxy"}]
    assert str(found.policy) == f"{mounts[volume]}/{file[0]}"
    (tmp_path / "policy.toml").write_text(file[1])
    assert not load_rules(tmp_path / "policy.toml").policy.observes


def test_probes_and_ports_are_those_of_the_proxy():
    found = parse(SIDECAR["args"])
    ports = {one["name"]: one["containerPort"] for one in SIDECAR["ports"]}
    assert ports == {"http": parse_address(found.listen)[1], "metrics": parse_address(found.metrics)[1]}
    assert SIDECAR["readinessProbe"]["httpGet"] == {"path": READY, "port": "http"}
    assert SIDECAR["livenessProbe"]["httpGet"] == {"path": HEALTH, "port": "http"}
    assert MANIFESTS["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    assert MANIFESTS["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert f"http://127.0.0.1:{ports['http']}{HEALTH}" in dockerfile
    assert f"EXPOSE {ports['http']} {ports['metrics']}" in dockerfile


def test_only_the_proxy_can_reach_the_server_and_every_selector_has_the_pod():
    (server,) = [one for one in POD["spec"]["containers"] if one["name"] == "vllm"]
    host, port = (server["args"][server["args"].index(flag) + 1] for flag in ("--host", "--port"))
    assert cli._upstream(parse(SIDECAR["args"]).upstream).base_url == f"http://{host}:{port}"
    assert host == "127.0.0.1"
    labels = POD["metadata"]["labels"]
    assert MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodMonitor"]["spec"]["selector"]["matchLabels"] == labels


def test_a_stop_leaves_time_for_open_answers():
    (server,) = [one for one in POD["spec"]["containers"] if one["name"] == "vllm"]
    waits = {one["name"]: int(one["lifecycle"]["preStop"]["exec"]["command"][1]) for one in (server, SIDECAR)}
    drain = parse(SIDECAR["args"]).drain
    assert waits["vllm"] > waits["harmony-proxy"] + drain
    assert POD["spec"]["terminationGracePeriodSeconds"] > waits["vllm"]
    unit = (DEPLOY / "systemd" / "harmony-proxy.service").read_text("utf-8")
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[1]) > parse(unit_command()[2:]).drain


def test_the_proxy_runs_without_rights():
    context = SIDECAR["securityContext"]
    assert context["runAsNonRoot"]
    assert context["readOnlyRootFilesystem"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in dockerfile


def test_the_rotated_log_is_that_of_the_unit():
    text = (DEPLOY / "systemd" / "harmony-proxy.logrotate").read_text("utf-8")
    assert text.startswith(f"{parse(unit_command()[2:]).log} {{")
    assert "systemctl reload harmony-proxy.service" in text


def test_the_image_has_all_that_the_wheel_is_built_of():
    build = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    needed = {build["hooks"]["custom"]["path"], *wheel["packages"], *wheel["force-include"]}
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    sources = {word.rstrip("/") for line in copied for word in line.split()}
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    for path in needed:
        parents = {path, *map(str, Path(path).parents)}
        assert parents & sources, f"{path} is not copied"
        assert parents & {line.removeprefix("!") for line in kept if line.startswith("!")}, f"{path} is ignored"


def test_each_file_is_on_the_page():
    files = [file.relative_to(DEPLOY.parent).as_posix() for file in DEPLOY.rglob("*") if file.is_file()]
    assert not [file for file in files if f"](../{file})" not in PAGE]
