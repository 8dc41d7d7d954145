"""The sources of the documentation site: a page for each id, each key and each option, in a navigation that leads to all, without a dead link."""

import argparse
import html
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import harmony_ref
from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import build_parser
from harmony_conformance.cli.report import read_run
from harmony_conformance.cli.run import run_all_file
from harmony_conformance.report.comparison import baseline_keys
from harmony_conformance.report.comparison.baseline import read_baseline
from harmony_conformance.report.pages.html import html as main_page
from harmony_conformance.runner.options import FAIL_ON
from harmony_conformance.runtime.file_keys import names_of
from harmony_proxy.configuration import PREFIX, from_environment, load_rules
from harmony_proxy.policy import policy, setting_keys

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, ROOT / "tools" / "write_site.py", "--draft", out], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def texts(site):
    return {page.relative_to(site / "pages").as_posix(): page.read_text("utf-8") for page in site.rglob("*.md")}


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_id_has_a_page(texts):
    for there in (
        "checks/tool_calls.calls_arrive",
        "defects/output-unparsed",
        "scenarios/tool_call",
        "causes/vllm-joiner",
        "commands/run",
        "commands/proxy",
    ):
        assert f"reference/{there}.md" in texts, there
    index = texts["reference/checks/index.md"]
    assert index.count(": **must** · ") + index.count(": **should** · ") == len(CHECKS)


@pytest.mark.slow
def test_a_search_leaves_out_examples_and_lists_of_what_has_pages(texts):
    page = texts["reference/checks/prompt.results_are_rendered.md"]
    for heading in ("Right", "Wrong", "Defects that make it fail"):
        assert f"\n## {heading} {{ data-search-exclude }}\n" in page
    assert "\n## Clause\n" in page
    for name in ("reports/FINDINGS.md", "conformance/CHECKS.md"):
        assert "search:\n  exclude: true\n" in texts[name].partition("\n---\n")[0] + "\n"


@pytest.mark.slow
def test_the_report_of_a_run_is_the_page_with_filters(site, texts):
    assert "reports/vllm-0.32.0/report.md" not in texts
    assert (site / "pages" / "reports" / "vllm-0.32.0" / "report.html").is_file()
    assert "](vllm-0.32.0/report.html)" in texts["reports/index.md"]
    (source,) = re.findall(r'<a href="([^"]+)"><picture>', texts["overview.md"])
    assert source == "../reports/vllm-0.32.0/report.html"  # a page is a folder


def test_the_page_of_a_run_leads_back_to_the_site(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    with_way_back = runpy.run_path(str(ROOT / "tools" / "site_sources" / "run_pages.py"))["with_way_back"]
    page = main_page(read_run(ROOT / "reports" / "tgi-3.3.7-chat"), FAIL_ON["must"], {})
    assert '<a href="../">published runs</a>' in with_way_back(page)
    with pytest.raises(ValueError, match="invalid page of a run"):
        with_way_back("<html></html>")


@pytest.mark.slow
def test_the_site_names_its_version_and_begins_with_the_readme(site):
    configuration = tomllib.loads((site / "zensical.toml").read_text("utf-8"))["project"]
    assert version("harmony-conformance") in configuration["copyright"]
    start = configuration["nav"][1]["Start"]
    assert start[0] == {"Overview": "overview.md"}
    commands = next(entry["Commands"] for entry in configuration["nav"][3]["Reference"] if "Commands" in entry)
    assert commands[:2] == ["reference/commands/index.md", {"All options": "reference/commands/options.md"}]


@pytest.mark.slow
def test_examples_are_shown_over_several_lines(texts):
    page = texts["reference/checks/channels.content_is_the_answer.md"]
    assert '```json\n{\n  "id": "chatcmpl-1",\n  "object": "chat.completion",\n' in page
    streamed = texts["reference/checks/streaming.one_finish_reason.md"]
    assert "```text\ndata: {" in streamed


@pytest.mark.slow
def test_pages_have_no_broken_markdown(texts):
    assert [page for page, text in texts.items() if re.search(r"^- ```", text, re.MULTILINE)] == []
    escaped = [page for page, text in texts.items() if r"\(" in without_code(text)]
    assert escaped == []  # the site reads it as the beginning of a formula


@pytest.mark.slow
def test_links_of_the_site(site, texts):
    pages = site / "pages"
    linked = {
        (pages / page).parent / place
        for page, text in texts.items()
        for place in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", without_code(text))
    }
    assert len(linked) > 1000
    assert [place for place in linked if not place.exists()] == []


@pytest.mark.slow
def test_html_links_of_the_matrix(site, texts):
    """They are the addresses of built pages, where each page is a folder."""
    pages = site / "pages"
    checked = 0
    for page, text in texts.items():
        if page.startswith("reports/matrix/"):
            own = pages / page.removesuffix("index.md").removesuffix(".md")
            for place in re.findall(r'href="([^"#]+)/(?:#[^"]*)?"', text):
                target = (own / place).resolve()
                assert target.with_name(f"{target.name}.md").is_file() or (target / "index.md").is_file(), (page, place)
                checked += 1
    assert checked > 300


@pytest.mark.slow
def test_navigation_leads_to_every_page(site, texts):
    configuration = tomllib.loads((site / "zensical.toml").read_text("utf-8"))["project"]
    shown = [place for section in configuration["nav"] for place in places(section)]
    assert len(shown) == len(set(shown))
    assert len(shown) > 1000
    assert set(shown) ^ texts.keys() == set()
    assert {"navigation.prune", "navigation.indexes", "navigation.path"} <= set(configuration["theme"]["features"])


def places(entry):
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for value in entry.values():
            for one in [value] if isinstance(value, str) else value:
                yield from places(one)


@pytest.mark.slow
def test_no_list_of_the_navigation_is_longer_than_a_family(site):
    """A page has the entries of its own family, its neighbours and its ancestors: no list may be as long as a kind."""
    configuration = tomllib.loads((site / "zensical.toml").read_text("utf-8"))["project"]

    def lengths(entry):
        for value in entry.values() if isinstance(entry, dict) else ():
            if isinstance(value, list):
                yield len(value)
                for one in value:
                    yield from lengths(one)

    assert max(length for section in configuration["nav"] for length in lengths(section)) <= 130


def options(parser):
    """The options and arguments of a parser and of its subcommands, each with the page's anchor."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, own in action.choices.items():
                yield from ((f"{name}-{anchor}", shown) for anchor, shown in options(own))
        elif not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            shown = html.escape(", ".join(action.option_strings) or action.metavar or action.dest.upper())
            shown = shown.replace("|", "&#124;")
            yield (action.option_strings[-1].lstrip("-") if action.option_strings else action.dest), shown


@pytest.mark.slow
def test_signs_of_markdown_in_code_are_shown(texts):
    (pattern,) = (
        line for line in texts["reference/configuration/baseline.md"].splitlines() if "Text of a failure" in line
    )
    assert "<code>message = &quot;&#42;&lt;&#124;channel&#124;&gt;&#42;&quot;</code>" in pattern


@pytest.mark.slow
def test_each_option_of_each_command_has_a_row(texts):
    commands = next(
        action for action in build_parser(None)._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    rows = 0
    for command, parser in commands.items():
        page = texts[f"reference/commands/{command}.md"]
        for anchor, shown in options(parser):
            assert page.count(f'| <a id="{anchor}" href="#{anchor}"><code>{shown}</code></a> | ') == 1, (
                command,
                anchor,
            )
            rows += 1
            if "--" in shown:
                option = shown.rpartition(", ")[2]
                assert f"## `{option}`\n" in texts["reference/commands/options.md"], option
    assert rows > 150
    run = texts["reference/commands/run.md"]
    assert (
        '| <a id="api" href="#api"><code>--api</code></a> | <code>chat</code>, <code>responses</code>, <code>messages</code>, '
        "<code>completions</code>, <code>ollama</code>, <code>tgi</code>, <code>sglang</code>, <code>all</code>; repeatable | "
        "chat; for a recording, its APIs | API of the scenarios; all: every API that the endpoint offers. |"
    ) in run
    assert (
        "<code>--timeout</code></a> | <code>S</code> | <code>60</code> | Maximum time without a byte, in seconds. |"
        in run
    )
    assert "## Gate\n" in run
    plugin = texts["reference/commands/pytest.md"]
    assert '<a id="endpoint" href="#endpoint"><code>--endpoint</code></a> | <code>TARGET</code>' in plugin
    assert (
        '<a id="harmony" href="#harmony"><code>--harmony</code></a> | <code>OPTION=VALUE</code>; repeatable' in plugin
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "keys"),
    [
        ("endpoints", run_all_file.KEYS),
        ("policy", setting_keys.KEYS),
        ("baseline", baseline_keys.KEYS),
        ("environment", setting_keys.VARIABLES),
    ],
)
def test_each_key_of_each_file_has_a_row(texts, page, keys):
    shown = html.unescape(texts[f"reference/configuration/{page}.md"]).splitlines()
    for key in keys:
        meaning = re.sub(r"`([^`]*)`", r"<code>\1</code>", key.meaning)
        rows = [line for line in shown if f"{key.name}</code></a>" in line and f" {meaning}<br>" in line]
        assert len(rows) == 1, key


def toml_of(texts, page):
    return re.search(r"^```toml\n(.*?)^```", texts[f"reference/configuration/{page}.md"], re.DOTALL | re.MULTILINE)[1]


@pytest.mark.slow
def test_examples_of_files_are_valid(texts, tmp_path):
    for page in ("endpoints", "baseline", "policy"):
        (tmp_path / f"{page}.toml").write_text(toml_of(texts, page), encoding="utf-8")
    (endpoint,) = run_all_file.read_endpoints(tmp_path / "endpoints.toml")
    assert (endpoint.name, endpoint.target) == ("provider-a", "https://a.example/v1")
    assert endpoint.rates is not None
    assert endpoint.load is not None
    (expected,) = read_baseline(tmp_path / "baseline.toml")
    assert expected.check == "streaming.*"
    rules = load_rules(tmp_path / "policy.toml")
    assert [route.path for route in rules.policy.routes] == ["*/chat/completions", "*"]
    assert rules.policy.routes[-1].actions["channels.no_marker_leak"] is policy.Action.REPAIR
    assert rules.policy.routes[0].fail is policy.FailMode.CLOSED


class Recorded(dict):
    """An environment that notes which variables are read."""

    def __init__(self):
        super().__init__()
        self.names = []

    def get(self, name, default=None):
        self.names.append(name)
        return default


def test_each_variable_of_the_guard_is_listed():
    environment = Recorded()
    from_environment(environment)
    assert sorted(set(environment.names)) == sorted(f"{PREFIX}{name}" for name in names_of(setting_keys.VARIABLES))


@pytest.mark.slow
def test_each_public_name_of_the_reference_has_an_entry(texts):
    page, index = texts["reference/api/harmony_ref.md"], texts["reference/api/index.md"]
    paths = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    assert len(paths) == len(set(paths)) == len(harmony_ref.__all__)
    assert {path.rpartition(".")[2] for path in paths} == set(harmony_ref.__all__)
    assert [name for name in harmony_ref.__all__ if f"<code>from harmony_ref import {name}</code>" not in index] == []


@pytest.mark.slow
def test_imports_of_the_api_pages_are_valid(texts):
    lines = [
        line
        for page in ("golden", "audit", "checks", "proxy")
        for line in texts[f"reference/api/{page}.md"].splitlines()
    ]
    imports = [line for line in lines if line.startswith("from ")]
    assert len(imports) >= 10
    subprocess.run([sys.executable, "-c", "\n".join(imports)], check=True)
