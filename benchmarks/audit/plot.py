"""Draw CPU time of audits against the size of the log: `plot.py RESULTS SVG`. Needs matplotlib, see requirements/plot.lock."""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

# Text stays text, and the same results give the same file.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "harmony", "font.size": 9})
COLOURS = {"needles": "#2b6a99", "structure": "#b3433b"}
STYLES = {1: "-", 2: "--"}


def main(source: Path, target: Path) -> None:
    rows = json.loads(source.read_text("utf-8"))["rows"]
    figure, axes = plt.subplots(figsize=(6, 3.8))
    for plan, colour in COLOURS.items():
        for workers, style in STYLES.items():
            points = [
                (row["bytes"] / 1e6, row["cpu"]) for row in rows if (row["plan"], row["workers"]) == (plan, workers)
            ]
            label = f"{plan}, workers: {workers}"
            axes.plot(*zip(*points, strict=True), style, color=colour, marker="o", ms=3, label=label)
    axes.set(xscale="log", yscale="log", xlabel="MB", ylabel="CPU seconds")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
