"""The live page on the address of the metrics: its data, who may read it, and how a real browser shows it."""

import json
import os
import shutil
import socket
from collections import Counter
from contextlib import contextmanager

import httpx
import pytest

pytest.importorskip("prometheus_client")

from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.configuration import create_listening_socket
from harmony_proxy.judging.counters import Gauges
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.live.upstream_probe import UpstreamProbe
from harmony_proxy.judging.metrics import serve_metrics
from harmony_proxy.judging.recent_reports import MOST_OUTCOMES, RecentReports

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECRET = "Persephone"
MARKUP = "<img src=x onerror=\"document.title='owned'\">"
HOSTILE = [MARKUP, "</td></table><script>document.title='owned'</script>", "\u202e\x9b2J", "x" * 300, "${7*7}"]
PLAIN_MODEL = "openai/gpt-oss-20b"
LEAK = "channels.no_marker_leak"


class Queue(JudgeQueue):
    """A queue without a process, whose judge reported these outcomes."""

    def __init__(self, *outcomes, counts=()):
        super().__init__(JudgeSettings())
        if outcomes:
            self._recent.add(f"{len(outcomes)} {json.dumps(outcomes)}\n".encode())
        self._counts = Counter(dict(counts))

    def start(self):
        return


def outcome(**more):
    return {
        "id": "run-1",
        "started": 1.5,
        "seconds": 0.25,
        "route": "/chat/completions",
        "model": PLAIN_MODEL,
        "status": 200,
        "end": "complete",
        "verdict": "failed",
        "failed": [LEAK],
        "repaired": [],
        "blocked": [],
        **more,
    }


@contextmanager
def served(queue, gauges=None, *, host="127.0.0.1", probe=None):
    with create_listening_socket(host, 0) as listening:
        port = listening.getsockname()[1]
    stop = serve_metrics((host, port), queue, gauges or Gauges(), probe)
    try:
        yield f"http://{host}:{port}"
    finally:
        stop()


def read(base):
    return httpx.get(f"{base}/live.json").json()


def recorded(model, *, number=1):
    recorder = Recorder()
    recorder.request_head("POST", "/v1/chat/completions", [(b"authorization", SECRET.encode())])
    recorder.request_body(json.dumps({"model": model, "messages": [{"role": "user", "content": SECRET}]}).encode())
    message = {"role": "assistant", "content": f"<|channel|>analysis<|message|>{SECRET}"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
    recorder.response_head(200, [(b"content-type", b"application/json")])
    recorder.feed(json.dumps(body).encode(), 0.1)
    recorder.abort(End.COMPLETE, "", 0.2)
    return recorder.pack(f"run-{number}", 1.5)


@pytest.fixture(scope="module")
def judged():
    """A queue whose process judged an answer for each hostile name of a model, and one that it served."""
    queue = JudgeQueue(JudgeSettings(priority="normal"))
    queue.start()
    for number, name in enumerate([*HOSTILE, PLAIN_MODEL], 1):
        queue.enqueue(recorded(name, number=number), 1000)
    queue.close()
    return queue


def test_the_data_of_judged_traffic_has_no_content_and_bounded_names(judged):
    with served(judged) as base:
        state = read(base)
    assert [one["id"] for one in state["recent"]] == [f"run-{number}" for number in range(len(HOSTILE) + 1, 0, -1)]
    assert [one["model"] for one in state["recent"]] == [PLAIN_MODEL, *["other"] * len(HOSTILE)]
    assert all(LEAK in one["failed"] and one["verdict"] == "failed" for one in state["recent"])
    assert SECRET not in json.dumps(state)
    assert state["totals"]["judged"] == state["verdicts"]["failed"] == len(HOSTILE) + 1
    (leak,) = [row for row in state["checks"] if row["check"] == LEAK]
    assert (leak["fail"], leak["pass"]) == (len(HOSTILE) + 1, 0)
    assert state["checks"][0]["fail"] == max(row["fail"] for row in state["checks"])


def test_gauges_actions_and_readiness():
    gauges = Gauges(exchanges_started=5, exchanges_ended=3, responses_buffered=1)
    counts = {("acted", LEAK, "blocked"): 2, ("verdicts", "a.b", "pass"): 9, ("exchanges", "chat", "complete"): 4}
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}/v1"
        with served(Queue(counts=counts), gauges, probe=UpstreamProbe(url)) as base:
            state = read(base)
    assert (state["open"], state["buffered"], state["upstream_ready"], state["judge_up"]) == (2, 1, True, True)
    assert state["totals"]["exchanges"] == 4
    assert [(row["check"], row["blocked"]) for row in state["checks"]] == [(LEAK, 2)]  # no row for what only passed
    assert UpstreamProbe(url)() is False
    assert UpstreamProbe("http://no-such-host.invalid:1")() is False
    with served(Queue()) as base:
        assert read(base)["upstream_ready"] is None


def test_the_newest_hundred_are_kept_and_a_truncated_report_changes_nothing():
    reports = RecentReports()
    for first in range(0, 270, 3):
        reports.add(b"3 " + json.dumps([first, first + 1, first + 2]).encode() + b"\n")
    reports.add(b"2 [1,")
    assert reports.newest() == list(range(269, 169, -1))
    assert len(reports._reports) <= MOST_OUTCOMES / 3 + 1
    reports.add(b"4 [bad]\n")
    assert reports.newest()[0] == 269


@pytest.mark.parametrize("path", ["/live", "/live.json", "/live/live.js", "/live/live.css"])
def test_a_page_under_another_name_cannot_read_it(path):
    with served(Queue()) as base:
        port = base.rpartition(":")[2]
        for host in ("evil.test", f"evil.test:{port}", "127.0.0.1.evil.test", "192.0.2.1", ""):
            answer = httpx.get(base + path, headers={"host": host})
            assert (answer.status_code, answer.headers["content-type"]) == (403, "text/plain; charset=utf-8"), host
        for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
            answer = httpx.get(base + path, headers={"host": host})
            assert answer.status_code == 200
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == (
                "nosniff",
                "no-store",
            )
            assert "access-control-allow-origin" not in answer.headers
        assert httpx.post(base + path).status_code == 405
        assert httpx.head(base + path).content == b""


def test_the_metrics_are_served_as_before():
    with served(Queue()) as base:
        for path in ("/metrics", "/"):
            answer = httpx.get(base + path, headers={"host": "prometheus.test"})
            assert (answer.status_code, "harmony_guard_open 0.0" in answer.text) == (200, True)


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
    if BROWSER is None:
        pytest.skip("no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=BROWSER, args=arguments)
        yield launched
        launched.close()


@contextmanager
def opened(browser, base, *, width=1400, scheme="light"):
    """The page; it may load only from its own server, and nothing that it logs may be an error."""
    problems = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    page.on("request", lambda request: None if request.url.startswith(base) else problems.append(request.url))
    page.goto(f"{base}/live")
    page.wait_for_selector("#state.good")
    try:
        yield page
    finally:
        context.close()
    assert problems == []


@pytest.mark.timeout(300)
def test_a_browser_shows_hostile_names_as_texts(browser):
    outcomes = [outcome(model=name, route=name, end=name, failed=[name], blocked=[name], id=name) for name in HOSTILE]
    counts = {("verdicts", name, "fail"): 1 for name in HOSTILE} | {("answers", "r", "m", "k", MARKUP): 3}
    with served(Queue(*outcomes, counts=counts)) as base, opened(browser, base) as page:
        rows = page.locator("#recent tbody tr")
        assert rows.count() == len(HOSTILE)
        cells = page.evaluate("[...document.querySelectorAll('#recent tbody tr')].map(row => row.cells[2].textContent)")
        assert cells == HOSTILE[::-1]
        assert page.evaluate("document.querySelectorAll('main img, main script, main a').length") == 0
        assert page.title() == "Harmony guard: live"
        assert MARKUP in page.inner_text("#figures")
        assert page.evaluate("document.querySelectorAll('#checks tbody tr').length") == len(HOSTILE)


@pytest.mark.timeout(300)
def test_a_browser_shows_what_comes_without_a_reload(browser):
    sync_api = pytest.importorskip("playwright.sync_api")
    queue, gauges = Queue(outcome(id="first")), Gauges()
    with served(queue, gauges) as base, opened(browser, base) as page:
        assert page.locator("#recent tbody tr").count() == 1
        page.evaluate("window.isSame = true")
        queue._recent.add(
            b"1 " + json.dumps([outcome(id="second", verdict="blocked", blocked=[LEAK])]).encode() + b"\n"
        )
        gauges.exchanges_started = 7
        rows = page.locator("#recent tbody tr")
        sync_api.expect(rows).to_have_count(2)
        sync_api.expect(rows.first).to_contain_text("second")
        sync_api.expect(rows.first).to_contain_text(f"blocked {LEAK}")
        sync_api.expect(page.locator("#figures div", has_text="Open exchanges").locator("dd")).to_have_text("7")
        assert page.evaluate("window.isSame") is True


@pytest.mark.timeout(300)
def test_a_browser_says_that_the_proxy_is_gone(browser):
    with served(Queue()) as base:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{base}/live")
        page.wait_for_selector("#state.good")
    page.wait_for_selector("#state.bad", timeout=60_000)
    assert page.inner_text("#state").startswith("Not connected")
    context.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", [380, 1400])
def test_a_browser_has_a_dark_and_a_light_page_that_fit(browser, width):
    colours = {}
    for scheme in ("light", "dark"):
        with (
            served(Queue(outcome(failed=[LEAK] * 5))) as base,
            opened(browser, base, width=width, scheme=scheme) as page,
        ):
            colours[scheme] = page.evaluate(
                "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
            )
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert colours == {
        "light": ["rgb(255, 255, 255)", "rgb(28, 32, 36)"],
        "dark": ["rgb(20, 23, 26)", "rgb(230, 233, 236)"],
    }


@pytest.mark.timeout(300)
def test_on_a_phone_a_browser_shows_each_cell_without_scrolling_sideways(browser, tmp_path):
    counts = {("verdicts", LEAK, "fail"): 3, ("verdicts", LEAK, "pass"): 12_000, ("acted", LEAK, "repaired"): 3}
    shown = outcome(model="openai/gpt-oss-120b", failed=[LEAK] * 5, id="9f3a1c20-" + "7" * 24)
    with served(Queue(shown, counts=counts)) as base, opened(browser, base, width=400) as page:
        parts = page.evaluate(
            "[...document.querySelectorAll('.scroll')].map(one => [one.scrollWidth, one.clientWidth])"
        )
        assert all(needed <= available for needed, available in parts), parts
        right = page.evaluate(
            "Math.max(...[...document.querySelectorAll('td')].map(one => one.getBoundingClientRect().right))"
        )
        assert right <= 400
        heads = page.evaluate("[...document.querySelectorAll('#recent tbody td')].map(one => one.dataset.head)")
        assert heads == ["Time", "Route", "Model", "Status", "Seconds", "Verdict", "Failed checks", "Action", "Id"]
        page.screenshot(path=tmp_path / "live.png", full_page=True)
