"""The tables of docs/repairs.md, made of the repairs themselves: `python -m harmony_proxy.repair.docs_page`."""

from __future__ import annotations

import sys

from harmony_proxy.repair.answer.repair_table import REPAIRS


def page() -> str:
    """What each repair does, and what cannot be repaired, as Markdown."""
    does = [f"| `{check}` | {repair.does} |" for check, repair in REPAIRS.items()]
    cannot = [
        f"| `{check}` | {name} | {reason} |"
        for check, repair in REPAIRS.items()
        for name, reason in repair.cannot.items()
    ]
    return "\n".join(
        [
            "| check | what is done |",
            "| --- | --- |",
            *does,
            "",
            "| check | example | why it cannot be repaired |",
            "| --- | --- | --- |",
            *cannot,
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(page() + "\n")
