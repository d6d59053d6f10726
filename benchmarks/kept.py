"""What `results/` keeps, read for pages: ratios to vLLM, acceptance rates, tables of reports, what witnesses said."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pandas as pd
from arrivals_race import ratios as ratios_by_turn
from decode_race import ratios as decode_ratios
from decode_table import RESULTS as DECODE
from decode_table import table
from race_workers import DRAFTS

from specbench.reports.document import Cell, Table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
RACES = "decode-race-h200.json", "decode-race-h200-more.json"
ACCEPTANCE = RESULTS / "head-acceptance-k8-h200.json"
_WORKLOADS = {"sharegpt-held-out": "ShareGPT, held out", "gsm8k": "GSM8K, test"}
_ESCAPED = re.compile(r"\\([\\`*_\[\]|~])")


def kept_file(name: str, text: str = "") -> Cell:
    """A kept file, copied into the site."""
    assert (HERE / name).is_file(), name
    return Cell(text=text or Path(name).name, href=f"data/{name}")


def kept_pages() -> tuple[Cell, ...]:
    """The pages of results here, which link to each other: README.md, then the others by their titles."""
    others = sorted(set(HERE.glob("*.md")) - {HERE / "README.md"})
    titles = [page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for page in others]
    named = (kept_file(page.name, title) for page, title in zip(others, titles, strict=True))
    return (kept_file("README.md", "All findings"), *named)


def ratios(shape: str) -> pd.DataFrame:
    """Decode TPS of ours over vLLM's. series: what is drafted and the prompt's length, x: batch, y: ratio, dashed:
    whether it was measured before kernels/skinny_gemm.py."""
    before = table(json.loads(DECODE.read_text(encoding="utf-8"))).assign(dashed=True)
    both = pd.concat([decode_cells().assign(dashed=False), before], ignore_index=True)
    both = both[(both["shape"] == shape) & both["k"].isin(DRAFTS)].sort_values(["k", "num_prompt", "dashed", "batch"])
    drafts = both["k"].map(lambda k: f"EAGLE-3, K={k}" if k else "no speculation")
    series = drafts + both["num_prompt"].map(lambda n: f", {n:,} prompt tokens")
    return pd.DataFrame({"series": series, "x": both["batch"], "y": both["ratio"], "dashed": both["dashed"]})


def newest(frame: pd.DataFrame) -> pd.DataFrame:
    """Of `ratios`, each cell as it was measured last."""
    return frame.sort_values("dashed", kind="stable").drop_duplicates(["series", "x"])


def decode_cells() -> pd.DataFrame:
    """A row for each cell of the races on one card: medians of both sides, the median of the turns' ratios, its range,
    how often outputs were identical."""
    rows = [row for name in RACES for row in json.loads((RESULTS / name).read_text(encoding="utf-8"))]
    frame = pd.DataFrame(rows)
    turns = [pd.Series(decode_ratios(row, "vllm")) for row in rows]
    return frame.assign(
        tps=[statistics.median(tps) for tps in frame["ours_tps"]],
        tps_vllm=[statistics.median(tps) for tps in frame["vllm_tps"]],
        ratio=[turn.median() for turn in turns],
        low=[turn.min() for turn in turns],
        high=[turn.max() for turn in turns],
    )


def tensor_parallel_race() -> list[dict]:
    """Cells with the figures of all turns, those of one card as well."""
    return json.loads((HERE / "results" / "decode-race-h200-tp.json").read_text(encoding="utf-8"))


def arrivals(name: str) -> list[dict]:
    """The loads under which requests come and go, from a file in results/. Each measure as `ours`, `vllm` (medians over
    turns) and its ratio by turn."""
    found = []
    for row in json.loads((HERE / "results" / name).read_text(encoding="utf-8")):
        named: dict = {key: row[key] for key in ("shape", "k", "load")}
        for measure in row["ours"][0]:
            medians = {side: statistics.median(turn[measure] for turn in row[side]) for side in ("ours", "vllm")}
            named[measure] = dict(**medians, ratios=ratios_by_turn(row, measure))
        found.append(named)
    return found


def evaluations() -> list[dict]:
    """Of the shipped head on each workload, K=8, greedy: workload by its name for readers, figures with and without
    loops."""
    found = json.loads(ACCEPTANCE.read_text(encoding="utf-8"))["evaluations"]
    return [{**one, "workload": _WORKLOADS[one["workload"]]} for one in found if one["workload"] in _WORKLOADS]


def acceptance() -> pd.DataFrame:
    """series: workload, x: draft position from 1, y: share of rounds that accept this draft and all before, dashed:
    without outputs that loop."""
    rows = [
        (one["workload"], i, rate, which == "without_loops")
        for one in evaluations()
        for which in ("all", "without_loops")
        for i, rate in enumerate(one[which]["marginal"], start=1)
    ]
    return pd.DataFrame(rows, columns=["series", "x", "y", "dashed"])


def report_table(name: str, columns: tuple[str, ...], rows: str = "") -> Table:
    """The table of a recipe in a kept report: `columns` only, rows whose arm matches `rows`."""
    whole = _blocks(name)[1]
    heading, head, _, *body = [line for line in whole.splitlines() if line.startswith(("#", "|"))]
    headers = _cells(head)
    picked = [headers.index(column) for column in columns]
    found = [[cells[i] for i in picked] for cells in map(_cells, body) if re.search(rows, cells[0])]
    claimed = [_plain(line[2:]) for line in whole.splitlines() if line.startswith("* claimed:")]
    return Table(
        title=_plain(heading.lstrip("# ")), headers=columns, rows=tuple(map(tuple, found)), notes=tuple(claimed)
    )


def report_command(name: str, recipe: str) -> str:
    """As it was typed, under the recipe's present name, without where it was kept."""
    lines = [r"^\* pooled: .*: (specbench run .+)$", r"^\* command: `?(.+?)`?$"]  # a pooled run names each part's
    typed = next(found for line in lines if (found := re.search(line, _text(name), re.MULTILINE)))
    renamed = re.sub(r"--recipe \S+", f"--recipe {recipe}", typed[1])
    return re.sub(r" (--output-dir|--label|--progress) \S+| -q\b", "", renamed)


def is_pooled(name: str) -> bool:
    """Whether the report's repeats are runs of their own."""
    return "\n* pooled: " in _text(name)


def report_model(name: str) -> str:
    found = re.search(r"^\* model: `?name=([^,`]+)", _text(name), re.MULTILINE)
    assert found is not None
    return found[1]


def same_texts(name: str) -> str:
    """`21 of 21`: what lm_eval_proof.py found."""
    found = re.search(r"^\* (\d+ of \d+) texts are the same", _text(name), re.MULTILINE)
    assert found is not None
    return found[1]


def _blocks(name: str) -> list[str]:
    """The report's parts; the second is the recipe's table."""
    return re.split(r"^(?=## )", _text(name), flags=re.MULTILINE)


def _text(name: str) -> str:
    return (RESULTS / name).read_text(encoding="utf-8")


def _cells(line: str) -> list[str]:
    return [_plain(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
