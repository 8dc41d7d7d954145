"""Draws how the cost grows with the work: `plot.py RESULTS SVG`. Needs matplotlib, which is in requirements/plot.lock."""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

# Text stays text, and the same results give the same file.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "harmony", "font.size": 9})

PANELS = {
    "Rendering": ("render, long messages", "render, short messages"),
    "Parsing": ("parse, one message", "parse, 20-token messages"),
}
CONTENDERS = {"openai-harmony": "#b3433b", "ours": "#2b6a99", "tiktoken": "#888888"}
LABELS = {"ours": "this package", "tiktoken": "tiktoken alone"}
STYLES = ("-", "--")


def main(source: Path, target: Path) -> None:
    results = json.loads(source.read_text("utf-8"))
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for axes, (title, works) in zip(panels, PANELS.items(), strict=True):
        for work, style in zip(works, STYLES, strict=True):
            for contender, colour in CONTENDERS.items():
                points = sorted(
                    (results["tokens"][task.partition(", ")[2]], by[contender])
                    for task, by in results["seconds"].items()
                    if task.startswith(f"{work}, ") and contender in by
                )
                label = f"{LABELS.get(contender, contender)}, {work.partition(', ')[2]}"
                sizes = [size for size, _ in points]
                axes.plot(sizes, [by["median"] for _, by in points], style, color=colour, marker="o", ms=3, label=label)
                axes.fill_between(
                    sizes,
                    [by["min"] for _, by in points],
                    [by["max"] for _, by in points],
                    color=colour,
                    alpha=0.15,
                    lw=0,
                )
        axes.set(title=title, xscale="log", yscale="log", xlabel="tokens")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=7, frameon=False)
    panels[0].set_ylabel("seconds")
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
