"""The built site in a real browser: search, breadcrumbs, side bars, and tables that fit. `make site test-browser` runs it."""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SITE = Path(__file__).parents[2] / "dist" / "docs" / "site"
WIDTHS = (400, 900, 1400)
CHECK = "reference/checks/channels.no_marker_leak/"
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine"),
    pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: make site"),
    pytest.mark.timeout(300),
]
RESULTS = """() => {
  const found = [];
  const walk = root => {
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) walk(element.shadowRoot);
      if (element.tagName === "A" && element.search.startsWith("?h=")) found.push(element.pathname);
    }
  };
  walk(document);
  return found;
}"""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):  # a page was closed while it was loading
        pass


@pytest.fixture(scope="module")
def address():
    handler = functools.partial(QuietHandler, directory=SITE)
    with QuietServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=BROWSER, args=arguments)
        yield launched
        launched.close()


@pytest.fixture
def page(browser):
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("channels.no_marker_leak", f"/{CHECK}"),
        ("output-unparsed", "/reference/defects/output-unparsed/"),
        ("vllm-joiner", "/reference/causes/vllm-joiner/"),
        ("tool_round_trip", "/reference/scenarios/tool_round_trip/"),
        ("assert_conforms", "/reference/api/golden/"),
        ("--baseline-write", "/reference/commands/options/"),
    ],
)
def test_search_finds_a_name_first(page, address, word, place):
    page.goto(address)
    page.locator(".md-search__button").click()
    page.get_by_role("combobox", name="Search").or_(page.get_by_label("Search").locator("input")).first.fill(word)
    page.wait_for_function(f"({RESULTS})().length > 0", timeout=60_000)
    page.wait_for_function(f"({RESULTS})()[0] === {place!r}", timeout=60_000)


def test_a_check_has_breadcrumbs_and_the_side_bar_of_its_family(page, address):
    page.goto(address + CHECK)
    assert page.locator(".md-path a").all_inner_texts() == ["Home", "Checks and causes", "Checks", "channels"]
    names = [name.strip() for name in page.locator(".md-sidebar--primary a").all_inner_texts()]
    assert {"no_marker_leak", "no_channel_words", "streaming"} <= set(names)
    assert "one_identity" not in names  # of another family
    assert len(names) < 100


@pytest.mark.parametrize("kind", ["checks", "causes", "defects", "scenarios"])
def test_pages_of_ids_are_small(kind):
    sizes = sorted(page.stat().st_size for page in (SITE / "reference" / kind).glob("*/index.html"))
    assert sizes[len(sizes) // 2] < 140_000  # with the families of its neighbours, and without their pages


@pytest.mark.parametrize("width", WIDTHS)
def test_the_matrix_scrolls_within_its_box_and_keeps_the_first_column(browser, address, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(f"{address}reports/matrix/")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    box = page.locator(".matrix").first
    first = box.locator("tbody th").first
    before = first.bounding_box()["x"]
    box.evaluate("box => { box.scrollLeft = 10000; box.scrollTop = 300; }")
    assert first.bounding_box()["x"] == pytest.approx(before, abs=2)
    head = box.locator("thead th").last.bounding_box()
    frame = box.bounding_box()
    assert frame["y"] - 1 <= head["y"] < frame["y"] + 3
    assert head["x"] + head["width"] <= frame["x"] + frame["width"] + 1
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "place", ["", CHECK, "reference/commands/run/", "reference/configuration/policy/", "overview/"]
)
def test_no_page_scrolls_sideways(browser, address, width, place):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(address + place)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_an_option_has_an_address(page, address):
    page.goto(f"{address}reference/commands/run/#baseline-write")
    row = page.locator("tr", has=page.locator("[id=baseline-write]"))
    assert "write a baseline" in row.inner_text().lower()
    page.wait_for_function("scrollY > 1000")
    assert 0 <= row.bounding_box()["y"] < 900


def test_options_fit_a_phone(browser, address):
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto(f"{address}reference/commands/run/")
    widest = page.evaluate(
        'Math.max(...[...document.querySelectorAll(".md-typeset td")].map(cell => cell.getBoundingClientRect().right))'
    )
    assert widest <= 400
    page.close()


LONG = "reference/checks/channels.answer_is_more_than_reasoning/"
BOX = "element => { const box = element.getBoundingClientRect(); return [box.left, box.right]; }"


def test_the_header_is_as_wide_as_the_page(page, address):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(address + LONG)
    *_, right = page.locator(".md-main__inner").evaluate(BOX)
    *_, search = page.locator(".md-search__button").evaluate(BOX)
    assert right - search < 40


def test_names_in_the_side_bar_break_between_their_words(page, address):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(address + LONG)
    parts = page.locator(".md-sidebar--primary a.md-nav__link--active .md-ellipsis").first.evaluate(
        """label => [...label.querySelectorAll("wbr")].map(one => one.previousSibling.data.trim())"""
    )
    assert parts == ["answer_", "is_", "more_", "than_"]
    lines = page.locator(".md-sidebar--primary a.md-nav__link--active .md-ellipsis").first.evaluate(
        """label => {
          const range = document.createRange();
          range.selectNodeContents(label);
          return new Set([...range.getClientRects()].filter(box => box.width > 0).map(box => Math.round(box.top))).size;
        }"""
    )
    assert lines == 2


def test_titles_break_between_their_words(page, address):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address + LONG)
    parts = page.locator(".md-content h1").evaluate(
        """title => [...title.querySelectorAll("wbr")].map(one => one.previousSibling.data.trim())"""
    )
    assert parts[-4:] == ["answer_", "is_", "more_", "than_"]


@pytest.mark.parametrize("width", [390, 1280])
def test_code_ends_before_the_button_that_copies_it(page, address, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}docs/proxy/")
    page.locator(".md-code__nav").first.wait_for()
    for block in page.locator(".md-typeset div.highlight:not(.output) pre:has(> .md-code__nav)").all()[:8]:
        _, code = block.locator("code").evaluate(BOX)
        button, _ = block.locator(".md-code__nav").evaluate(BOX)
        assert code <= button + 1


def test_output_looks_unlike_a_command(page, address):
    page.goto(f"{address}docs/proxy/")
    output, command = (
        page.locator(".md-typeset div.output pre").first,
        page.locator(".md-typeset div.highlight:not(.output) pre").first,
    )
    page.locator(".md-code__nav").first.wait_for()
    assert command.locator(".md-code__nav").is_visible()
    assert not output.locator(".md-code__nav").is_visible()
    background = "element => getComputedStyle(element).backgroundColor"
    assert output.evaluate(background) != command.evaluate(background)


def test_guides_are_in_groups(page, address):
    page.goto(f"{address}docs/ci/")
    names = [name.strip() for name in page.locator(".md-sidebar--primary .md-ellipsis").all_inner_texts()]
    groups = ["Test", "Compare and measure", "Logs and live traffic", "Harmony in your code", "Servers to try"]
    assert [name for name in names if name in groups] == groups
    assert {"Rates", "Audit a log", "In production"} <= set(names)
    assert page.locator(".md-tabs__link").count() == 7


CONTRAST = """() => {
  const numbers = text => text.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const light = rgb => rgb.map(one => one / 255)
    .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
  const own = light(numbers(getComputedStyle(document.querySelector(".md-content a:not(.headerlink)")).color));
  const paper = light(numbers(getComputedStyle(document.body).backgroundColor));
  return (Math.max(own, paper) + 0.05) / (Math.min(own, paper) + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_links_have_enough_contrast(browser, address, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto(f"{address}docs/proxy/")
    page.locator(f"body[data-md-color-scheme={'slate' if scheme == 'dark' else 'default'}]").wait_for()
    assert page.evaluate(CONTRAST) > 4.5
    page.close()


def test_the_site_has_its_own_mark(page, address):
    page.goto(f"{address}docs/proxy/")
    mark, icon = page.locator(".md-header .md-logo img"), page.locator("link[rel=icon]")
    assert mark.evaluate("image => image.naturalWidth > 0")
    assert icon.get_attribute("href").endswith("mark.svg")


@pytest.mark.parametrize(("width", "shown"), [(400, "first-screen-narrow.svg"), (1400, "first-screen.svg")])
@pytest.mark.parametrize("place", ["", "overview/"])
def test_a_phone_has_a_narrow_picture_and_whole_commands(browser, address, place, width, shown):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(address + place)
    picture = page.locator("picture img").first
    assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
    assert picture.evaluate("image => image.currentSrc").endswith(f"docs/{shown}")
    for code in page.locator(".hero pre code").all():
        assert code.evaluate("code => code.scrollWidth <= code.clientWidth")
    page.close()


def test_the_name_fits_the_header_of_a_phone(page, address):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address)
    name = page.locator(".md-header__title .md-ellipsis").first
    assert name.inner_text().strip() == "harmony-conformance"
    assert name.evaluate("name => name.scrollWidth <= name.clientWidth")
