from pathlib import Path

from harmony_proxy.acting.page import page


def test_the_page_has_the_tables_of_the_repairs_as_they_are():
    told = (Path(__file__).parents[2] / "docs" / "repairs.md").read_text(encoding="utf-8")
    assert page() in told, "python -m harmony_proxy.acting.page prints what has to stand there"
