"""README's picture of a real model with a trained head, docs/real-acceptance.svg, from the stored repeats:
`PYTHONPATH=.ns python benchmarks/qwen_picture.py`."""

from __future__ import annotations

import json
import statistics
from io import StringIO
from pathlib import Path

import matplotlib

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results" / "qwen-coder-head-h200.json"
FILE = ROOT / "docs" / "real-acceptance.svg"
LOADS = ("1", "8")  # at 32 requests the repeats vary by up to 31 %: in the table, not in a picture
COLOURS = {"vllm": "#8a8f98", "specbench": "#2a6fdb"}


def picture() -> str:
    """Tokens per second of each arm, one panel for each load; whiskers: least and most of the repeats."""
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    style = {"svg.hashsalt": "specbench", "svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif"}
    loads = json.loads(KEPT.read_text(encoding="utf-8"))["loads"]
    with plt.rc_context(style):
        figure, panels = plt.subplots(1, len(LOADS), figsize=(9.6, 3.3), sharey=True, layout="constrained")
        for panel, load in zip(panels, LOADS, strict=True):
            arms = loads[load]["arms"]
            base = statistics.median(arms["vLLM, no speculation"]["tps"])
            for place, arm in enumerate(arms.values()):
                middle, least, most = statistics.median(arm["tps"]), min(arm["tps"]), max(arm["tps"])
                panel.barh(place, middle, height=0.62, color=COLOURS[arm["engine"]])
                panel.errorbar(middle, place, xerr=[[middle - least], [most - middle]], color="#222", capsize=2, lw=1)
                panel.annotate(
                    f"{middle:,.0f} ({middle / base:.2f}x)",
                    (most, place),
                    xytext=(5, 0),
                    textcoords="offset points",
                    va="center",
                )
            panel.set_title(f"{load} request{'s' * (load != '1')} at a time", loc="left", fontweight="bold")
            panel.set_xlim(0, 1.38 * max(max(arm["tps"]) for arm in arms.values()))
            panel.set_yticks(range(len(arms)), list(arms))
            panel.xaxis.set_major_formatter("{x:,.0f}")
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].invert_yaxis()
        figure.supxlabel("output tokens per second (in brackets: times vLLM's without speculation)", fontsize="medium")
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, facecolor="white")
        plt.close(figure)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
