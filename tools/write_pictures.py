"""Take the pictures of the guides: pages that the commands write, in a real browser. Needs playwright and Chromium: `make pictures`.

    python tools/write_pictures.py [--check]

Each picture shows what its guide's commands write. `docs/pictures/texts.json` has the text that a reader sees in each, without times and versions.
With `--check`, nothing is written: exit code 1 names a picture whose page has other text now.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
TEXTS = PICTURES / "texts.json"
_COMMAND = (sys.executable, "-m", "harmony_conformance")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_WIDTH = 1000
_LEAK, _EFFORT, _CALLS = "output-unparsed", "effort-ignored", "calls-dropped"
_CHANGING = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:+.Z]+|\d\d?:\d\d:\d\d [AP]M|\d+\.\d+\.\d+(?:\+g?\w+)?|\b\d\.\d\d\b|\b[0-9a-f]{8}-\d"
)
"""Text that differs between two runs: times, versions, durations, ids of exchanges."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture of a page.

    Attributes:
        height: Height of the picture.
        prepare: Makes the page, in a folder, and shows it in the browser.
    """

    height: int
    prepare: Callable[[Page, Path, ExitStack], None]


def call(folder: Path, *words: str) -> None:
    """Call the command in a folder. Failed checks are no error here.

    Raises:
        RuntimeError: The command did not do its work.
    """
    done = subprocess.run([*_COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - words of this file
    if done.returncode not in {0, 1}:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")


def _run(page: Page, folder: Path, _: ExitStack) -> None:
    call(
        folder,
        "run",
        f"reference:defect={_LEAK}",
        "--select",
        "simple_answer",
        "--select",
        "tool_call",
        "--out",
        "before",
    )
    page.goto((folder / "before" / "report.html").as_uri())


def _failure(page: Page, folder: Path, opened: ExitStack) -> None:
    _run(page, folder, opened)
    name = page.locator("#failures").get_by_text("channels.no_channel_words", exact=True).nth(1)
    page.evaluate("top => scrollTo(0, top)", name.evaluate("one => one.getBoundingClientRect().top + scrollY - 80"))


def _matrix(page: Page, folder: Path, _: ExitStack) -> None:
    targets = {"release": _EFFORT, "next": f"{_EFFORT},{_CALLS}"}
    tables = (f'[[endpoint]]\nname = "{name}"\ntarget = "reference:defect={ids}"\n' for name, ids in targets.items())
    options = 'options = ["--select", "effort", "--select", "tool_call"]\n'
    (folder / "harmony-conformance.toml").write_text(options + "\n".join(tables), encoding="utf-8")
    call(folder, "run-all", "--jobs", "1", "--out", "all")
    page.goto((folder / "all" / "matrix.html").as_uri())


def _audit(page: Page, folder: Path, _: ExitStack) -> None:
    example = [sys.executable, str(ROOT / "examples" / "week_of_logs.py"), "."]
    subprocess.run(example, cwd=folder, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - an example of this repository
    page.goto((folder / "audit" / "report.html").as_uri())


def _live(page: Page, folder: Path, opened: ExitStack) -> None:
    server, proxy, metrics = _ports(3)
    opened.enter_context(_running(folder, server, "serve", "--port", str(server), "--defect", _LEAK))
    (folder / "policy.toml").write_text('[checks]\n"channels.*" = "repair"\n', encoding="utf-8")
    words = ["proxy", "--upstream", f"http://127.0.0.1:{server}/v1", "--listen", f"127.0.0.1:{proxy}"]
    words += ["--policy", "policy.toml", "--log", "log.jsonl", "--metrics", f"127.0.0.1:{metrics}"]
    opened.enter_context(_running(folder, proxy, *words))
    questions = ("Hello?", "What is 2 + 3?", "Name a colour.", "Thank you.")
    for question in questions:
        body = {"model": "gpt-oss-reference", "messages": [{"role": "user", "content": question}]}
        headers = {"content-type": "application/json"}
        asked = Request(f"http://127.0.0.1:{proxy}/v1/chat/completions", json.dumps(body).encode(), headers)
        urlopen(asked).read()  # noqa: S310
    page.goto(f"http://127.0.0.1:{metrics}/live")
    page.locator("#recent tbody tr").nth(len(questions) - 1).wait_for()


PICTURES_BY_NAME: Mapping[str, Picture] = {
    "report": Picture(height=900, prepare=_run),
    "failure": Picture(height=640, prepare=_failure),
    "matrix": Picture(height=720, prepare=_matrix),
    "audit": Picture(height=780, prepare=_audit),
    "live": Picture(height=600, prepare=_live),
}


def _ports(count: int) -> Sequence[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def _running(folder: Path, port: int, *words: str) -> Iterator[None]:
    """Run a server of the command until it is no longer needed."""
    command = [*_COMMAND, *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:  # noqa: S603 - words of this file
        try:
            assert server.stdout is not None
            if str(port) not in server.stdout.readline():
                raise RuntimeError(f"{words[0]} did not start")
            yield
        finally:
            server.terminate()


def _take(browser: Browser, name: str, out: Path) -> str:
    """Write a picture, and return the text in its frame."""
    picture = PICTURES_BY_NAME[name]
    with TemporaryDirectory() as folder, ExitStack() as opened:
        page = browser.new_page(viewport={"width": _WIDTH, "height": picture.height}, color_scheme="light")
        picture.prepare(page, Path(folder), opened)
        page.screenshot(path=out / f"{name}.png")
        text = str(page.evaluate(_SEEN))
        page.close()
    return _CHANGING.sub("…", text)


_SEEN = """() => {
  const seen = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    const text = walker.currentNode.data.trim().replace(/\\s+/g, " ");
    if (text && box.width > 0 && box.top >= 0 && box.bottom <= innerHeight) seen.push(text);
  }
  return seen.join("\\n");
}"""


def main() -> int:
    """Take the pictures, or compare their texts."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        out = Path(folder) if is_check else PICTURES
        out.mkdir(exist_ok=True)
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        texts = {name: _take(browser, name, out) for name in PICTURES_BY_NAME}
        browser.close()
    if not is_check:
        TEXTS.write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return 0
    known = json.loads(TEXTS.read_text("utf-8"))
    changed = [name for name, text in texts.items() if known.get(name) != text]
    for name in changed:
        sys.stderr.write(f"docs/pictures/{name}.png is not current: make pictures\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
