"""The pictures of the guides: each is shown on a page, and a real browser still shows its text."""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
HAS_BROWSER = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))


def test_each_picture_is_shown_and_described():
    shown = {}
    for page in (ROOT / "docs").glob("*.md"):
        shown |= {
            name: text for text, name in re.findall(r"!\[([^\]]*)\]\(pictures/([\w-]+)\.png\)", page.read_text("utf-8"))
        }
    names = {picture.stem for picture in PICTURES.glob("*.png")}
    assert set(shown) == names == set(json.loads((PICTURES / "texts.json").read_text("utf-8")))
    assert all(len(text) > 30 for text in shown.values())
    assert sum(picture.stat().st_size for picture in PICTURES.glob("*.png")) < 500_000


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    find_spec("playwright") is None or not HAS_BROWSER, reason="no playwright or no chromium: make test-browser"
)
def test_pictures_are_current():
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "write_pictures.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
