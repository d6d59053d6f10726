"""What other implementations say of the same rounds, and what A/B experiments say of no change or a planted one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
from kept import HERE, kept_file, same_texts
from kept_rounds import agreement, said
from kept_rounds import read as read_rounds

from specbench.harness.stats.verdict import IMPROVED, REGRESSED
from specbench.harness.store.ab_judgement import AB_FILE, AB_SCHEMA, Judgement
from specbench.harness.store.codec import read_document
from specbench.reports.cells import acceptance_length, change_text, size_text
from specbench.reports.document import Cell, Command, Section, Table
from specbench.reports.experiments.verdict_table import interval
from specbench.reports.site.runs import SiteRun

ROUNDS = {"safeailab": "SafeAILab's own EAGLE code", "vllm": "vLLM"}


def witnesses(pages: Mapping[str, SiteRun]) -> Section:
    """Other implementations, each with its script and the record that was kept."""
    rows = (
        *(row for name, witness in ROUNDS.items() for row in _rounds(name, witness)),
        *_vllm_lengths(),
        _transformers(),
        (
            kept_file("lm_eval_proof.py", "lm-eval's hf model, GSM8K, fp32"),
            f"{same_texts('lm-eval-cpu.md')} texts identical",
            kept_file("results/lm-eval-cpu.md"),
        ),
        (
            kept_file("lm_eval_proof.py", "lm-eval's hf model, GSM8K with the chat template, fp32"),
            f"{same_texts('lm-eval-cpu-chat.md')} texts identical",
            kept_file("results/lm-eval-cpu-chat.md"),
        ),
        _llama_cpp(pages["llama.cpp-cpu"]),
    )
    table = Table(title="Other implementations", headers=("compared with (script)", "result", "record"), rows=rows)
    more = kept_file("engines/README.md", "more about other engines")
    return Section(title="Checked against other implementations", links=(more,), tables=(table,))


def _rounds(name: str, witness: str) -> Iterator[tuple[Cell, str, Cell]]:
    """Round by round: an arm a row."""
    record = read_rounds(HERE / f"results/{name}-rounds.json")
    which = record["witness"].get("version") or record["witness"]["commit"][:8]
    for arm in record["arms"]:
        yield (
            kept_file(f"{name}_rounds.py", f"{witness}, {which}: our head, {arm['arm']}, fp32"),
            said(agreement(arm)),
            kept_file(f"results/{name}-rounds.json"),
        )


def witnessed_rounds() -> str:
    """`804 of 804`: of all records."""
    arms = [arm for name in ROUNDS for arm in read_rounds(HERE / f"results/{name}-rounds.json")["arms"]]
    found = [agreement(arm) for arm in arms]
    return f"{sum(same.num_equal for same in found):,} of {sum(same.num_rounds for same in found):,}"


def _vllm_lengths() -> Iterator[tuple[Cell, str, Cell]]:
    file = "results/head-vllm.jsonl"
    for one in map(json.loads, (HERE / file).read_text(encoding="utf-8").splitlines()):
        yield (
            kept_file("head_vllm.py", f"vLLM {one['vllm']}: our head, {one['workload']}, K=4"),
            f"{one['vllm_length']:.3f} tokens per round; specbench {one['specbench_length']:.3f}",
            kept_file(file),
        )


def _transformers() -> tuple[Cell, str, Cell]:
    file = "results/cpu-vs-transformers.json"
    found = json.loads((HERE / file).read_text(encoding="utf-8"))["dtypes"]["float32"]
    return (
        kept_file("cpu.md", "transformers' generate, fp32"),
        f"{found['equal_outputs']} outputs identical; specbench {found['ratio_median']:.2f}x as fast",
        kept_file(file),
    )


def _llama_cpp(run: SiteRun) -> tuple[Cell, str, Cell]:
    """Its own counters beside our count of our rounds."""
    ours = next(arm for arm in run.arms if arm.label == "eagle:k=4").acceptance
    counters = pd.read_parquet(run.path / "counters.parquet")
    theirs = counters[counters["arm"] == "llama.cpp/eagle:k=4"].groupby("name")["value"].sum()
    length = 1 + theirs["engine.spec_decode_num_accepted_tokens"] / theirs["engine.spec_decode_num_drafts"]
    return (
        kept_file("engines/README.md", "llama.cpp's server: our head, K=4, fp32"),
        f"{length:.2f} tokens per round by its counters; specbench {acceptance_length(ours).partition(' ')[0]}",
        Cell(text="the run", href=run.page),
    )


def noise(pages: Mapping[str, SiteRun]) -> Section:
    equal, planted = experiments()
    changed = num_changed(equal)
    found = ", ".join(record.verdict for record in planted.values())
    return Section(
        title="Noise: identical sides and planted changes",
        sentences=(
            f"{changed} of {len(equal)} experiments with identical sides report a change. The verdicts where a change "
            f"was planted: {found}.",
        ),
        links=(kept_file("verdicts.md", "more verdicts"), kept_file("engines/README.md", "how they were planted")),
        commands=(Command(name="On your own machine", text="specbench power -s eagle:k=4"),),
        tables=(
            Table(
                title="Step time of B against A",
                headers=("experiment", "change [95% CI]", "MDE", "blocks", "verdict"),
                rows=tuple(_experiment(file, record, pages) for file, record in (equal | planted).items()),
                notes=("MDE: the minimum detectable effect with this many blocks.",),
            ),
        ),
    )


def experiments() -> tuple[dict[Path, Judgement], dict[Path, Judgement]]:
    """Those of equal sides, and those with a planted change, by their names."""
    found = {file: file.parent.name for file in sorted(HERE.rglob(AB_FILE))}
    kinds = (r"(^|-)aa(\d|-|$)", r"(^|-)planted(-|$)")
    equal, planted = (
        {file: read_document(file, Judgement, AB_SCHEMA) for file, name in found.items() if re.search(kind, name)}
        for kind in kinds
    )
    return equal, planted


def num_changed(experiments: Mapping[Path, Judgement]) -> int:
    """How many say that a side improved or regressed."""
    return sum(record.verdict in (IMPROVED, REGRESSED) for record in experiments.values())


def _experiment(file: Path, record: Judgement, pages: Mapping[str, SiteRun]) -> tuple[str | Cell, ...]:
    step = next(c for c in record.metrics if c.metric.name == "step time")
    folder = file.parent.relative_to(HERE).as_posix()
    name = re.sub(r"^(runs|engines)/|\d{8}T\d{6}Z-", "", folder)
    page = pages.get(file.parent.name)
    link = Cell(text=name, href=page.page) if page else kept_file(f"{folder}/ab.md", name)
    ends = f" {interval(step.low, step.high)}" if step.low is not None and step.high is not None else ""
    change = f"{change_text(step.change, max_decimals=2)}{ends}"
    blocks = str(sum(block.measured and not block.reasons for block in record.blocks))
    return link, change, size_text(step.least_effect), blocks, record.verdict
