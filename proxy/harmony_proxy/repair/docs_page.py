"""Print the tables of docs/repairs.md from the table of repairs: `python -m harmony_proxy.repair.docs_page`."""

from __future__ import annotations

import sys

from harmony_proxy.repair.answer.repair_table import REPAIRS


def page() -> str:
    """Return the descriptions of all repairs and the list of unrepairable examples as Markdown tables."""
    descriptions = [f"| `{check}` | {repair.description} |" for check, repair in REPAIRS.items()]
    exceptions = [
        f"| `{check}` | {name} | {reason} |"
        for check, repair in REPAIRS.items()
        for name, reason in repair.unrepairable_examples.items()
    ]
    return "\n".join(
        [
            "| check | repair |",
            "| --- | --- |",
            *descriptions,
            "",
            "| check | example | reason why it is not repaired |",
            "| --- | --- | --- |",
            *exceptions,
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(page() + "\n")
