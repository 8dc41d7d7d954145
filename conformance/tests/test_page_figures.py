"""Figures that pages repeat are those of the stored results, of the stored reports, or of the code."""

import gzip
import html
import json
import lzma
import re
import runpy
import statistics
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.sampling.task import read_tasks

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks" / "results").is_dir():
    pytest.skip("the archive of the sources has no results", allow_module_level=True)


def page(name):
    return " ".join((ROOT / name).read_text("utf-8").split())


def results(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("script", "names", "made"),
    [
        ("report.py", ["side_by_side"], "performance.md"),
        ("proxy/page.py", ["proxy", "proxy_soak"], "proxy-performance.md"),
        ("hostile/page.py", ["hostile"], "hostile.md"),
        ("audit/page.py", ["audit", "audit_growth"], "audit-performance.md"),
    ],
)
def test_pages_of_benchmarks_are_those_of_their_results(script, names, made, tmp_path):
    folder = ROOT / "benchmarks"
    files = [folder / "results" / f"{name}.json" for name in names]
    subprocess.run([sys.executable, folder / script, *files, tmp_path / made], check=True)
    assert (tmp_path / made).read_text("utf-8") == (ROOT / "docs" / made).read_text("utf-8")


def test_cost_of_a_whole_run():
    found, text = results("run_cost"), page("benchmarks/README.md")
    run = next(one for one in found["runs"] if one["cpu"] == found["cpu"])
    sender, judge, server = run["processes"][:3]
    assert f"{run['wall']:.1f} s on two idle cores for {run['exchanges']:,} exchanges" in text
    assert f"and {run['cpu']:.1f} s of CPU time. The sender has {sender:.1f} s of it" in text
    assert f"the judge {judge:.1f} s, the server {server:.1f} s" in text


def test_share_of_the_slots_and_cost_of_an_exchange_more():
    found, text = results("run_scaling"), page("benchmarks/README.md")
    shares = [f"{one['share']:.0%}".replace("%", " %") for one in found["slow server"]]
    assert f"{shares[0]}, {shares[1]} and {shares[2]} with 1, 2 and 8 requests" in text
    first, second = (f"{1000 * one:.1f} ms" for one in found["scenarios"]["marginal_cpu_per_exchange"])
    assert f"costs {first} from a quarter to half, and {second} from half to all" in text


def test_alarms_of_the_gates():
    found, text = results("gate_noise"), page("benchmarks/README.md")
    assert set(found["alarms"].values()) | {one["alarms"] for one in found["load alarms"].values()} == {0}
    differences = [one for load in found["load alarms"].values() for one in load["differences"]]
    differing = sum(len({one["repetition"] for one in load["differences"]}) for load in found["load alarms"].values())
    largest = max(abs(one["after"] / one["before"] - 1) for one in differences)
    assert f"In {differing} of the {2 * found['loads']} comparisons some percentile differs" in text
    assert f"by {largest:.0%} at most".replace("%", " %") in text


def test_costs_of_the_proxy():
    costs = page("docs/proxy-performance.md")
    added = re.search(r"HarmonyGuard, CPU of the path per small JSON request.*?\| ([\d.]+) \(", costs)
    assert f"about {float(added[1]):.0f} µs of CPU time to a small request" in page("proxy/README.md")
    of_addon = results("proxy")["measures"]["stream, 32"]["addon"]["path"]["rounds"]
    assert f"about {statistics.median(of_addon) / 1000:.1f} ms for each event" in page("docs/mitmproxy.md")


def test_costs_of_repairs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    table = runpy.run_path(str(ROOT / "benchmarks" / "repair_cost.py"))["table"]
    for name in ("judge_cost", "prose"):
        sys.modules.pop(name, None)
    assert table(results("repair_cost")) in (ROOT / "docs" / "repairs.md").read_text("utf-8")


def test_requests_of_a_run(capsys):
    main(["run", "vllm:http://127.0.0.1:9/v1", "--dry-run", "-q", "--api", "chat"])
    plain, scripted = (int(one) for one in re.findall(r"(\d+) requests", capsys.readouterr().out)[:2])
    said = f"about {round(plain, -1):,} requests over Chat Completions, {round(scripted, -2):,} with scripted output"
    assert said in page("docs/faq.md")


def test_first_screen():
    screen = html.unescape((ROOT / "docs" / "first-screen.svg").read_text("utf-8")).replace("\N{NO-BREAK SPACE}", " ")
    known = json.loads((ROOT / "golden" / "causes" / "vllm.json").read_text("utf-8"))["causes"]
    affected = {cause["id"]: cause["affected"] for cause in known}
    with lzma.open(ROOT / "reports" / "vllm-0.32.0" / "report.jsonl.xz", "rt", encoding="utf-8") as lines:
        causes = [affected[row["id"]] for row in map(json.loads, lines) if row["kind"] == "cause"]
    assert f"causes: {len(causes)}," in screen
    newer = sum("to 0.33.0" in versions for versions in causes)
    assert f"Three of {len(causes)} causes found in vLLM 0.32.0" in page("README.md")
    assert f"Of the {len(causes)}, {newer} are also in 0.33.0." in page("README.md")


@pytest.mark.parametrize(
    ("report", "path", "quoted", "recorded"),
    [
        ("tgi-3.3.7", ("choices", 0, "message", "content"), "analysisFine.assistantfinalGood.", ""),
        ("ollama-0.34.4", ("error", "message"), "error parsing tool call", """: raw='{"a":1}{"a":2}', err="""),
    ],
)
def test_bugs_of_the_first_table(report, path, quoted, recorded):
    """The recording of the report has an answer that begins with the words that the page quotes."""
    assert f"`{quoted}`" in page("README.md")
    found = []
    with gzip.open(ROOT / "reports" / report / "exchanges.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            if quoted in line and len(chunks := json.loads(line)["response"].get("chunks", ())) == 1:
                value = json.loads(chunks[0][1])
                with suppress(LookupError, TypeError):
                    for step in path:
                        value = value[step]
                    found.append(value)
    assert any(str(value).startswith(quoted + recorded) for value in found)


def test_the_prompt_of_the_first_table():
    """Reasoning in the history is in no prompt of SGLang."""
    section = page("reports/sglang-parsers-0.5.23/report.md").partition(
        r"#### MUST sglang\-reasoning\-not\-passed\-back"
    )[2]
    assert "- analysis: Look. + not in the prompt" in section.partition("####")[0]


def test_the_first_screen_of_a_phone_has_whole_sentences_and_larger_letters():
    wide, narrow = ((ROOT / "docs" / f"first-screen{form}.svg").read_text("utf-8") for form in ("", "-narrow"))
    widths = [float(re.search(r'viewBox="0 0 (\d+) ', picture)[1]) for picture in (wide, narrow)]
    assert widths[1] < widths[0] / 2
    assert "prefers-color-scheme: light" in wide
    assert "prefers-color-scheme: light" in narrow
    rows = [html.unescape(row).replace("\N{NO-BREAK SPACE}", " ") for row in re.findall(r">([^<>\n]+)</text>", narrow)]
    shown = " ".join(" ".join(rows).split())
    assert "A call that the request does not allow is returned: in streams by 0.32.0" in shown
    assert re.search(r"causes: \d+, for \d+ failed results", shown)[0] in " ".join(
        html.unescape(wide).replace("\N{NO-BREAK SPACE}", " ").split()
    )


def test_speed_picture():
    seconds = results("side_by_side")["seconds"]
    works = ("parse, 20-token messages, 100000", "render, short messages, 100000", "render, five tools")
    factors = [round(seconds[work]["openai-harmony"]["median"] / seconds[work]["ours"]["median"]) for work in works]
    assert re.findall(r"(\d+) times faster", page("docs/speed.svg")) == [str(factor) for factor in factors]
    assert f"harmony_ref is {min(factors)} to {max(factors)} times faster" in page("README.md")


def test_graded_tasks():
    count = sum(len(tasks) for name, tasks in read_tasks().items() if name != "compatibility")
    assert f"{count} graded tasks" in page("README.md")


def test_readings_of_the_reports():
    groups, right, false = re.search(
        r"all ([\d,]+) groups of published failures. They called ([\d.]+ %) right in everything and ([\d.]+ %) false",
        page("docs/concepts.md"),
    ).groups()
    reading = page("docs/accuracy.md")
    assert f"read all {groups} groups" in reading
    assert f"({right})" in reading
    assert f"({false})" in reading
