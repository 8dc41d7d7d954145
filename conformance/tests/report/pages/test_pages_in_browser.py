"""The pages in a real browser, as a person uses them: open, filter, follow a cause to its exchange; three widths, dark and light."""

import os
import shutil
from contextlib import redirect_stdout
from io import StringIO

import pytest

from harmony_conformance.cli.main import main

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine"),
    pytest.mark.timeout(300),
]
WIDTHS = (380, 800, 1400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs, a load of three rates, and their pages."""
    out = tmp_path_factory.mktemp("pages")
    select = ["--select", "simple_answer", "--select", "tool_round_trip", "--latency", "0"]
    main(["run", "reference", *select, "--out", str(out / "right")])
    main(["run", "reference:defect=output-unparsed:defect=effort-ignored", *select, "--out", str(out / "wrong")])
    for name, target in (("efforts", "reference"), ("efforts-ignored", "reference:defect=effort-ignored")):
        main(["run", target, "--select", "effort", "--latency", "0", "--out", str(out / name)])
    load = ["--rate", "50,100", "--requests", "20", "--output-tokens", "8", "--slo", "e2e_p95=200ms"]
    main(["load", "reference", *load, "--out", str(out / "load")])
    return out


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=BROWSER, args=arguments)
        yield launched
        launched.close()


@pytest.fixture
def show(browser):
    """Opens a page; nothing that it logs may be an error, and it may load nothing else."""
    contexts, problems = [], []

    def opened(path, width=1400, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("request", lambda request: problems.append(request.url) if "file://" not in request.url else None)
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def test_a_cause_leads_to_its_exchange_in_two_clicks(folder, show):
    page = show(folder / "wrong" / "report.html")
    page.get_by_role("link", name="Causes", exact=True).click()
    card = page.locator("#causes article").first
    card.get_by_role("link", name="the whole exchange").click()
    number = page.evaluate("location.hash")
    exchange = page.locator(f"{number} details.whole")
    assert exchange.get_attribute("open") is not None
    assert exchange.get_by_text("Prompt that reached the model").is_visible()
    assert exchange.locator(".chip").first.is_visible()
    assert exchange.bounding_box()["y"] < 900


def test_failures_are_searched_filtered_and_cleared(folder, show):
    page = show(folder / "wrong" / "report.html")
    shown = page.locator("details.result:visible")
    everything = shown.count()
    page.keyboard.press("/")
    page.keyboard.type("no_channel_words")
    page.get_by_text(f" of {everything} failed results").filter(has_not_text=f"{everything} of").wait_for()
    assert 0 < shown.count() < everything
    assert "q=no_channel_words" in page.url
    page.keyboard.press("Escape")
    assert shown.count() == everything
    page.get_by_label("severity").select_option("SHOULD")
    assert 0 < shown.count() < everything
    page.get_by_role("button", name="Clear").click()
    page.locator("#causes article").first.get_by_role("button", name="failed result").click()
    assert 0 < shown.count() <= everything
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_new_failure_leads_to_its_prompt_before_and_after(folder, show, width):
    """The server ignores the effort: the word after `Reasoning: ` is the marked one on both sides."""
    written = page_of("compare", folder / "efforts", folder / "efforts-ignored")
    (folder / "efforts.html").write_text(written, "utf-8")
    page = show(folder / "efforts.html", width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("link", name="The prompt before and after").first.click()
    card = page.locator(page.evaluate("location.hash"))
    assert card.bounding_box()["y"] < 900
    sides = [card.locator(f".{side} pre") for side in ("expected", "actual")]
    marked = [side.locator("mark").all_inner_texts() for side in sides]
    assert [[word.strip() for word in words] for words in marked] == [["low"], ["medium"]]
    assert all(side.locator(".chip").first.is_visible() for side in sides)
    boxes = [side.bounding_box() for side in sides]
    is_side_by_side = boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    assert is_side_by_side is (width == max(WIDTHS)) or width == 800
    if pictures := os.environ.get("HARMONY_PICTURES"):
        page.screenshot(path=f"{pictures}/prompts-{width}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window(folder, show, width, scheme):
    (folder / "comparison.html").write_text(page_of("compare", folder / "right", folder / "wrong"), "utf-8")
    (folder / "matrix.html").write_text(page_of("matrix", folder / "right", folder / "wrong", folder / "load"), "utf-8")
    for name in ("wrong/report.html", "comparison.html", "matrix.html", "load/load.html"):
        page = show(folder / name, width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(",")))
        assert (light > 600) is (scheme == "light"), name
        if pictures := os.environ.get("HARMONY_PICTURES"):
            page.screenshot(path=f"{pictures}/{name.replace('/', '-')}-{width}-{scheme}.png")


def page_of(command, *folders):

    printed = StringIO()
    with redirect_stdout(printed):
        main([command, *map(str, folders), "--format", "html"])
    return printed.getvalue()
