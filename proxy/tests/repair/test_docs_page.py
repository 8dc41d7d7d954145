from pathlib import Path

from harmony_proxy.repair.docs_page import page


def test_the_page_has_the_tables_of_the_repairs_as_they_are():
    told = (Path(__file__).parents[3] / "docs" / "repairs.md").read_text(encoding="utf-8")
    assert page() in told, "python -m harmony_proxy.repair.docs_page prints what has to stand there"
