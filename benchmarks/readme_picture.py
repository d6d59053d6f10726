"""The picture of README, docs/rounds.svg, from stored traces: `PYTHONPATH=.ns python benchmarks/readme_picture.py`."""

from __future__ import annotations

import re
from pathlib import Path

from stored_rounds import own_round

from specbench.harness.profiling.record import Profile
from specbench.reports.html import page_environment
from specbench.reports.profile.cells import duration
from specbench.reports.profile.timeline import GUTTER_PX, WIDTH_PX, timeline, timeline_span_ns

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "rounds.svg"
TEMPLATES = ROOT / "reports" / "templates"
ROUNDS = {"eagle": "Three graphs and one wait for the host", "naive-eagle": "One graph a round"}
_HEADING_PX, _GAP_PX, _LINE_PX = 26.0, 14.0, 18.0
_OWN_STYLE = """.timeline text { font-size: 12.5px; }
.heading { font: 600 16px system-ui, sans-serif; fill: var(--text); }
.unit { font: 12.5px system-ui, sans-serif; fill: var(--quiet); }"""


def picture() -> str:
    """Both rounds over one scale, in the colours of the pages, light and dark."""
    profiles = {arm: own_round(arm) for arm in ROUNDS}
    span = max(map(timeline_span_ns, profiles.values()))
    template = page_environment(TEMPLATES).get_template("timeline.svg.j2")
    parts, top = [], 0.0
    for arm, profile in profiles.items():
        idle = duration(profile.idle.verify_to_draft_idle_ns)
        heading = f"{ROUNDS[arm]}: the GPU idles {idle} before the drafter"
        drawn = timeline(profile, heading, span)
        place = f'y="{top + _HEADING_PX}" width="{WIDTH_PX:g}" height="{drawn.height}" '
        parts.append(f'<text class="heading" y="{top + 17}">{heading}</text>')
        axis = top + _HEADING_PX + drawn.height - 8
        parts.append(
            f'<text class="heading unit" x="{GUTTER_PX - 14}" y="{axis}" text-anchor="end">{drawn.unit}</text>'
        )
        parts.append(template.render(drawn=drawn, id=arm).replace("<svg ", f"<svg {place}", 1))
        top += _HEADING_PX + drawn.height + _GAP_PX
    for line in why_it_ends_later(profiles["eagle"], profiles["naive-eagle"]):
        parts.append(f'<text class="heading unit" y="{top + 4}">{line}</text>')
        top += _LINE_PX
    size = f'viewBox="0 0 {WIDTH_PX:g} {top:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>Two decode rounds, in µs</title>'
    ground = '<rect width="100%" height="100%" fill="var(--ground)"/>'
    patterns = (TEMPLATES / "patterns.svg").read_text(encoding="utf-8")
    text = "\n".join([head, f"<style>{_style()}</style>", patterns, ground, *parts, "</svg>\n"])
    return _without_hints(text)


def why_it_ends_later(three: Profile, one: Profile) -> tuple[str, str]:
    """From the durations of both rounds, since a reader compares their ends first."""
    (three_launch, three_gpu), (one_launch, one_gpu) = _launch_and_work_ns(three), _launch_and_work_ns(one)
    assert one_launch > three_launch and one_gpu < three_gpu, "the picture's lines say what the traces show"
    return (
        f"From its first kernel to its last the GPU takes {duration(three_gpu)} with three graphs, {duration(one_gpu)} "
        "with one.",
        f"The one graph begins later, and so ends later: under {one.source.kind} its launch takes the host "
        f"{duration(one_launch)}, that of the first of three {duration(three_launch)}.",
    )


def _launch_and_work_ns(profile: Profile) -> tuple[float, float]:
    """Of the host, to launch what the GPU begins with; of the GPU, from the first kernel to the last."""
    kernels = [bar for bar in profile.timeline if bar.row.startswith("gpu") and bar.via_graph]
    begin_ns, end_ns = min(bar.t0_ns for bar in kernels), max(bar.t1_ns for bar in kernels)
    launch = max((bar for bar in profile.timeline if bar.row == "host" and bar.t0_ns < begin_ns), key=lambda b: b.t0_ns)
    return launch.t1_ns - launch.t0_ns, end_ns - begin_ns


def _without_hints(text: str) -> str:
    """What a pointer would show, which an image on a page does not."""
    return re.sub(r"(<rect class=\"bar[^>]*)><title>.*?</title></rect>", r"\1/>", text)


def _style() -> str:
    """The parts of the pages' style sheet that a drawing needs."""
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    colours, rules = css[: css.index("* {")], css[css.index(".timeline text") : css.index("footer {")]
    return colours + rules + _OWN_STYLE


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
