"""The Benchmarks page and the README's picture: every figure is that of the kept record, computed here once more."""

from __future__ import annotations

import html
import itertools
import json
import re
import statistics
import sys
from pathlib import Path

import pytest
from reports.conftest import browser, open_file, serious_violations  # noqa: F401
from test_docs import unknown_option

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.append(str(ROOT / "benchmarks"))

from example_site import benchmarks_page  # noqa: E402
from kept_rounds import agreement, said  # noqa: E402
from readme_picture import FILE, picture  # noqa: E402

from specbench.harness.store.run_file import read_run_record  # noqa: E402
from specbench.reports.site.build import build_site  # noqa: E402
from specbench.workloads.assets.cache import read_sha256  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build_site([ROOT / "benchmarks" / "engines"], folder, more=lambda runs: [benchmarks_page(runs)])
    assert built.problems == ()
    return folder


def test_tables_of_kept_runs_are_those_that_their_records_name():
    for file in (ROOT / "benchmarks").rglob("run.json"):
        for name, sha256 in read_run_record(file).files.items():
            assert read_sha256(file.parent / name) == sha256, file


@pytest.fixture(scope="module")
def page(site) -> str:
    return (site / "benchmarks.html").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    apart = re.sub(r"</dt>|<span class=\"note\">", " ", page)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", apart)).split())


def values(page: str, title: str) -> list[dict]:
    specs = map(json.loads, re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL))
    return next(one for one in specs if one["description"].startswith(title))["data"]["values"]


def rows(page: str, title: str) -> list[list[str]]:
    """Cells of the table with this caption, below its head."""
    table = next(t for t in re.findall(r"<table.*?</table>", page, re.DOTALL) if f">{title}</" in t)
    lines = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [[text_of(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", line, re.DOTALL)] for line in lines][1:]


def test_ratios_to_vllm_are_those_of_the_kept_repeats(page):
    kept: dict[tuple, dict[str, list]] = {}
    for row in json.loads((RESULTS / "decode-h200.json").read_text()):
        side = kept.setdefault((row["shape"], row["k"], row["batch"], row["num_prompt"]), {"ours": [], "theirs": []})
        median = statistics.median(row["decode_tps"])
        side["ours" if row["engine"] == "specbench" else "theirs"].append((row["measured_in"], median))
    before = {key: max(s["ours"])[1] / max(tps for _, tps in s["theirs"]) for key, s in kept.items()}
    dashed = {(_series(key), key[2], ratio) for key, ratio in before.items() if key[0] == "llama-3.1-8b"}
    wanted = race_ratios()
    drawn = {
        (_series(key), key[2], ratio) for key, ratio in wanted.items() if key[0] == "llama-3.1-8b" and key[1] in (0, 4)
    }
    found = values(page, "Decode tokens/s relative to vLLM")
    for is_dashed, expected in ((False, drawn), (True, dashed)):
        own = sorted((v["series"], v["x"], v["y"]) for v in found if v["dashed"] == is_dashed)
        assert [cell[:2] for cell in own] == [cell[:2] for cell in sorted(expected)]
        assert [cell[2] for cell in own] == pytest.approx([cell[2] for cell in sorted(expected)])
    assert len(wanted) == 35 and sorted(r[3] for r in rows(page, "Cells with repeats")) == sorted(
        f"{ratio:.2f}x" for ratio in wanted.values()
    )
    again = {cell[:2] for cell in drawn}
    newest = drawn | {cell for cell in dashed if cell[:2] not in again}
    slowest, fastest = min(newest, key=_ratio), max(newest, key=_ratio)
    said = text_of(page)
    assert f"lowest ratio to vLLM 0.26, 8B on one H200 {slowest[2]:.2f}x {slowest[0]}, batch {slowest[1]}" in said
    assert f"highest ratio to vLLM 0.26, 8B on one H200 {fastest[2]:.2f}x {fastest[0]}, batch {fastest[1]}" in said
    assert f"in {sum(cell[2] >= 1 for cell in newest)} of {len(newest)} cells, each as last measured." in said


def race_ratios() -> dict[tuple, float]:
    """Median over turns of ours / vLLM, by shape, K, batch and prompt tokens."""
    names = "decode-race-h200.json", "decode-race-h200-more.json"
    races = [row for name in names for row in json.loads((RESULTS / name).read_text())]
    return {
        (row["shape"], row["k"], row["batch"], row["num_prompt"]): statistics.median(
            ours / theirs for ours, theirs in zip(row["ours_tps"], row["vllm_tps"], strict=True)
        )
        for row in races
    }


def _ratio(cell) -> float:
    return cell[2]


def _series(key) -> str:
    return f"{f'EAGLE-3, K={key[1]}' if key[1] else 'no speculation'}, {key[3]:,} prompt tokens"


def test_the_readme_has_the_ratios_of_the_race():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [
        ("llama-3.1-8b", 128, "Llama-3.1-8B shape"),
        ("llama-3.1-8b", 4096, "Llama-3.1-8B shape, 4,096 prompt tokens"),
        ("smollm2-135m", 128, "SmolLM2-135M shape"),
    ]
    kept = race_ratios()
    for shape, prompt, name in rows:
        for k, strategy in ((0, "no speculation"), (4, "EAGLE-3 K=4")):
            found = [kept.get((shape, k, batch, prompt)) for batch in (1, 8, 32, 64, 128)]
            (line,) = [line for line in text.splitlines() if line.startswith(f"| {name}, {strategy} |")]
            assert [cell.strip() for cell in line.split("|")[2:-1]] == [f"{one:.2f}" if one else "" for one in found]


def test_acceptance_is_that_of_the_evaluation(page):
    kept = json.loads((RESULTS / "head-acceptance-k8-h200.json").read_text())["evaluations"]
    found = values(page, "Accepted by draft position")
    for one, name in zip(kept, ("ShareGPT, held out", "GSM8K, test"), strict=True):
        for which, is_dashed in (("all", False), ("without_loops", True)):
            own = [v["y"] for v in found if v["series"] == name and v["dashed"] == is_dashed]
            assert own == pytest.approx(one[which]["marginal"]) and len(own) == 8
            own = one[which]
            assert f"{own['length']:.2f} [{own['low']:.2f}, {own['high']:.2f}]" in text_of(page)


@pytest.mark.parametrize(
    ("title", "report", "num_rows"),
    [
        ("EAGLE kernel fusion and fewer synchronisations", "seed-20078-h200.md", 6),
        ("FlashInfer in speculative decoding, padded drafter batch", "seed-25196-h200.md", 5),
        ("full CUDA graphs for the drafter", "seed-34880-h200.md", 8),
        ("naive EAGLE at high load", "pr-6995-h200-x2.md", 5),
    ],
)
def test_tables_of_pull_requests_are_those_of_the_kept_reports(page, title, report, num_rows):
    text = (RESULTS / report).read_text().replace("\\", "")
    part = text[text.index(f": {title}\n") :].split("\n## ")[0]
    shown = rows(page, title)
    assert len(shown) == num_rows
    for name, *cells in shown:
        (line,) = [line for line in part.splitlines() if line.startswith(f"| {name} |")]
        whole = [cell.strip() for cell in line.split("|")]
        assert all(cell in whole for cell in cells), (name, cells, whole)
    assert text_of(page).count("Only the report was kept, not the repeats.") == 4
    assert "The recipe now uses qwen3-4b; the report is for llama-3.1-8b" in text_of(page)
    assert text_of(page).count("Reproduce") == 6  # three pull requests, vLLM, acceptance, a round


@pytest.mark.parametrize(
    ("run", "title", "num_arms"),
    [
        ("vllm-pr-25196-in-vllm", "vLLM PR 25196 in vLLM itself: padded drafter batch", 7),
        ("vllm-pr-34880-in-vllm", "vLLM PR 34880 in vLLM itself: full CUDA graphs for the drafter", 6),
    ],
)
def test_a_run_in_vllm_is_recomputed_from_its_requests(page, run, title, num_arms):
    """Tokens of all requests over the time from the first submit to the last token, the median of the repeats."""
    import pandas as pd

    frame = pd.read_parquet(ROOT / "benchmarks" / "engines" / run / "requests.parquet")
    shown = {row[0].removesuffix(" (synthetic)"): row[1] for row in rows(page, title)}
    for arm, own in frame.groupby("arm"):
        tps = [_tps(block) for _, block in own.groupby("repeat")]
        assert float(shown[arm]) == pytest.approx(statistics.median(tps), rel=1e-3), arm
    assert len(shown) == num_arms


def _tps(block) -> float:
    seconds = (block["t_last_ns"].max() - block["t_submit_ns"].min()) / 1e9
    return block["num_output_tokens"].sum() / seconds


def test_witnesses_say_what_was_kept(page):
    said = [cells[1] for cells in rows(page, "Other implementations")]
    vllm = map(json.loads, (RESULTS / "head-vllm.jsonl").read_text().splitlines())
    wanted = [f"{v['vllm_length']:.3f} tokens per round; specbench {v['specbench_length']:.3f}" for v in vllm]
    speed = json.loads((RESULTS / "cpu-vs-transformers.json").read_text())["dtypes"]["float32"]
    wanted.append(f"{speed['equal_outputs']} outputs identical; specbench {speed['ratio_median']:.2f}x as fast")
    for name in ("lm-eval-cpu.md", "lm-eval-cpu-chat.md"):
        lines = [line for line in (RESULTS / name).read_text().splitlines() if re.match(r"\| \d", line)]
        wanted.append(f"{sum('| yes |' in line for line in lines)} of {len(lines)} texts identical")
    assert said[3 : 3 + len(wanted)] == wanted and said[-1].startswith("2.29 tokens per round by its counters")


def _starts(side) -> dict[int, int]:
    """Accepted drafts by the number of tokens before the round, of the rounds that begin before the answer's end."""
    places = itertools.accumulate((n + 1 for n in side["accepted"]), initial=1)
    return dict(zip(places, side["accepted"], strict=False))


@pytest.mark.parametrize(("name", "arms", "num_rounds"), [("safeailab", 2, 804), ("vllm", 1, 455)])
def test_rounds_of_witnesses_are_those_of_the_kept_records(page, name, arms, num_rounds):
    record = json.loads((RESULTS / f"{name}-rounds.json").read_text())
    links = {cells[0]: cells[1] for cells in rows(page, "Other implementations")}
    assert len(record["arms"]) == arms
    total = 0
    for arm in record["arms"]:
        pairs = [(one["specbench"], one["witness"]) for one in arm["prompts"]]
        for side in (side for pair in pairs for side in pair):
            made = 1 + sum(side["accepted"]) + len(side["accepted"])
            assert max(_starts(side)) < len(side["tokens"]) <= made  # no round behind the end, none missing
        same = sum(ours["tokens"] == theirs["tokens"] for ours, theirs in pairs)
        equal = sum(len(_starts(ours).items() & _starts(theirs).items()) for ours, theirs in pairs)
        rounds = sum(len(ours["accepted"]) for ours, _ in pairs)
        (told,) = [
            text for title, text in links.items() if f"head, {arm['arm']}, fp32" in title and name in title.lower()
        ]
        told_rounds = f"{equal} of {rounds} rounds accepted the same number of drafts"
        assert told == f"{same} of {len(pairs)} answers the same; {told_rounds}"
        assert (same, equal) == (12, rounds) and told in (RESULTS / f"{name}-rounds.md").read_text()
        total += rounds
    assert total == num_rounds
    assert "rounds equal to EAGLE's own code and to vLLM's 1,259 of 1,259" in text_of(page)


def test_a_round_that_accepts_otherwise_is_seen():
    def prompt(tokens, accepted):
        ours = {"tokens": [7, 8, 9, 1, 2, 3], "accepted": [1, 2]}
        return {"prompts": [{"id": "p", "specbench": ours, "witness": {"tokens": tokens, "accepted": accepted}}]}

    assert said(agreement(prompt([7, 8, 9, 1, 2, 3], [1, 2]))).startswith("1 of 1 answers the same; 2 of 2 rounds")
    other = agreement(prompt([7, 8, 9, 1, 2, 3], [1, 0, 1]))
    assert (other.num_equal, other.num_rounds) == (1, 2) and other.differences[0].what == "accepted"
    parted = agreement(prompt([7, 8, 9, 1, 5, 6], [1, 2]))
    assert parted.num_same_answers == 0 and (parted.differences[0].at, parted.num_rounds) == (4, 1)


def test_noise_is_that_of_the_judgements(page):
    found = {cells[0]: cells for cells in rows(page, "Step time of B against A")}
    assert len(found) == 9
    for name, cells in found.items():
        pattern = re.sub(r"^(cpu|h200)/", r"\1/*-", name)
        (file,) = [f for top in ("runs", "engines") for f in (ROOT / "benchmarks" / top).glob(f"{pattern}/ab.json")]
        record = json.loads(file.read_text())
        step = next(m for m in record["metrics"] if m["metric"]["name"] == "step time")
        assert float(cells[1].split("%")[0]) == pytest.approx(100 * step["change"], abs=0.051), name
        assert cells[4] == record["verdict"]
    assert (
        "0 of 6 experiments with identical sides report a change. The verdicts where a change was planted: "
        "regressed, regressed, inconclusive" in text_of(page)
    )


def test_rounds_are_those_of_the_traces(page):
    from profiling.test_golden import TIMES_NS

    for arm, words in (("eagle", "three graphs and one host wait"), ("naive-eagle", "one graph")):
        idle_us = TIMES_NS[arm, "nsys"][-1] / 1e3
        assert f"With {words}, the GPU is idle for {float(f'{idle_us:.3g}'):g} µs before the drafter" in text_of(page)


def test_links_lead_to_files_and_commands_have_their_options(site, page):
    targets = [t for t in re.findall(r'href="([^"#]+)"', page) if not t.startswith("data:")]
    assert len(targets) > 30 and not [target for target in targets if not (site / target).is_file()]
    pages = list((ROOT / "benchmarks").glob("*.md"))
    assert {f"data/{path.name}" for path in pages} <= set(targets)  # copied whole, and linking to each other there
    for path in pages:
        others = re.findall(r"\]\(((?:engines/)?[\w-]+\.md)", path.read_text(encoding="utf-8"))
        assert not [other for other in others if not (site / "data" / other).is_file()], path.name
    commands = [html.unescape(text) for text in re.findall(r"<pre[^>]*><code>(.*?)</code>", page, re.DOTALL)]
    ours = [line for text in commands for line in text.splitlines() if line.startswith("specbench ")]
    assert len(ours) == 7 and not [(line, bad) for line in ours if (bad := unknown_option(line))]


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (420, "dark")])
def test_the_page_in_a_browser(open_file, serious_violations, site, width, scheme):  # noqa: F811
    opened = open_file(site / "benchmarks.html", site, viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened.locator("details.fold").evaluate_all("all => all.forEach(e => e.open = true)")
    opened.wait_for_function("[...document.querySelectorAll('.chart')].every(e => e.dataset.state)")
    assert opened.locator(".chart[data-state=drawn]").count() == 2
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    labels = opened.locator("svg .role-axis-label text").all_text_contents()
    assert len(labels) > 15 and not [label for label in labels if "…" in label]
    assert serious_violations(opened) == []


def test_the_picture_of_the_readme_is_what_the_traces_give(open_file, tmp_path):  # noqa: F811
    assert FILE.read_text(encoding="utf-8") == picture(), "run `PYTHONPATH=.ns python benchmarks/readme_picture.py`"
    assert FILE.stat().st_size < 60_000 and f"docs/{FILE.name}" in (ROOT / "README.md").read_text()
    opened = open_file(FILE, viewport={"width": 1000, "height": 400})
    box = opened.evaluate("(({width, height}) => [width, height])(document.documentElement.viewBox.baseVal)")
    ends = opened.locator("text").evaluate_all(
        "all => { const s = document.documentElement.getBoundingClientRect(); return all.map(e => {"
        " const b = e.getBoundingClientRect();"
        " return [b.left - s.left, b.top - s.top, s.right - b.right, s.bottom - b.bottom]; }); }"
    )
    assert box[0] == 1000 and len(ends) > 20 and min(map(min, ends)) >= -1


def test_the_picture_of_readme_says_why_the_one_graph_ends_later():
    """Its GPU is done sooner, but a reader compares the ends of both rounds."""
    text = FILE.read_text(encoding="utf-8")
    assert "the GPU takes 238.3 µs with three graphs, 210.5 µs with one." in text
    assert "under nsys its launch takes the host 92.8 µs, that of the first of three 39.2 µs." in text
