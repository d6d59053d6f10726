"""Runs for the tests of the site: a sweep, a history with a step, an experiment, proofs, traces, broken folders."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from ab_samples import experiment
from known_results import results
from profile_samples import eagle_profile
from run_samples import SAMPLING, begun, chain_block

from specbench.harness.judge.ab_verdict import judge
from specbench.harness.metrics.accuracy import ACCURACY_SCHEMA
from specbench.harness.profiling.profile_file import write_profile
from specbench.harness.store.codec import write_document
from specbench.harness.store.evaluation_record import EvalConfig, EvaluationRecord, TaskLimit
from specbench.harness.store.files import write_json
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.run_directory import RunDirectory

HOSTILE = "ngram:n=3,</script><img src=x onerror=alert(1)>"
EAGLE = "eagle:k=4"
MAX_PAGE_BYTES = 5_000_000
ARMS = ("no-spec", EAGLE, HOSTILE)


def finished_run(folder: Path, *, started: str, concurrency: int = 1, round_ms: float = 10.0, sha: str = "") -> Path:
    """Two repeats of `ARMS`. An EAGLE round takes `round_ms`, one of no-spec 8 ms; both grow with `concurrency`, the
    first by more."""
    run = RunDirectory.create(folder, "sweep", begun(*ARMS, sampling=replace(SAMPLING, max_concurrency=concurrency)))
    load = math.log2(concurrency)
    for repeat in range(2):
        drift = repeat * 0.1
        run.append("no-spec", repeat, **chain_block([0] * 12, k=0, round_ms=8.0 + load + drift))
        run.append(EAGLE, repeat, **chain_block([4, 0, 2, 1, 3, 0], round_ms=round_ms + 4 * load + drift))
        run.append(HOSTILE, repeat, **chain_block([1, 0, 0, 1, 0, 0], k=2, round_ms=9.0 + load + drift))
    run.finish(results(run.frames()))
    return dated(run.path, started=started, sha=sha)


def dated(path: Path, **changes: str) -> Path:
    """The run as if it had begun then, of that commit."""
    file = path / "run.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    raw["started_utc"] = changes["started"]
    if changes.get("sha"):
        raw["git"] = {**(raw["git"] or {}), "sha": changes["sha"], "dirty": False}
    file.write_text(json.dumps(raw), encoding="utf-8")
    return path


def copied(run: Path, folder: Path, number: int, **changes: Any) -> Path:
    """A copy under an id of its own; `scale`: of all times that are stored as results."""
    target = folder / f"20260101T{number:06d}Z-copy-{number:08x}"
    shutil.copytree(run, target)
    file = target / "run.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    raw.update(run_id=target.name, started_utc=changes["started"], git={**raw["git"], "sha": changes["sha"]})
    for block in raw["results"]["blocks"]:
        _scale(block["figures"]["values"], changes.get("scale", 1.0))
    raw["results_sha256"] = None
    file.write_text(json.dumps(raw), encoding="utf-8")
    return target


def _scale(figures: dict[str, Any], scale: float) -> None:
    for name, value in figures.items():
        if name.startswith(("round_ms.", "tpot_ms.", "ttft_ms.")):
            figures[name] = value and value * scale
    figures["tps"] /= scale


def experiment_run(folder: Path, **options: Any) -> Path:
    """An A/B experiment with its record."""
    directory = experiment(folder, **options)
    if directory.record.ended_utc is None:
        directory.finish(results(directory.frames()))
    write_document(directory.path / "ab.json", judge(directory))
    return dated(directory.path, started="2026-03-01T00:00:00Z")


def add_certificate(run: Path, ok: bool = True) -> None:
    """Two arms certified; the second failed where not `ok`."""
    rows = [_certified(EAGLE, True), _certified(HOSTILE, ok)]
    tolerance = {"logits": 0.0123, "method": "two dense passes", "undecided": 0.01, "num_positions": 200}
    whole = {"schema": "specbench.certificate/1", "status": "complete", "certificates": rows}
    write_json(run / "certificate.json", {**whole, "tolerances": {"0.0": tolerance}})


def _certified(arm: str, ok: bool) -> dict[str, Any]:
    return {
        "arm": arm,
        "temperature": 0.0,
        "ok": ok,
        "error": "",
        "problems": [] if ok else ["a token 3.2 logits below the best"],
        "num_prompts": 8,
        "num_exact": 8 if ok else 5,
        "divergences": [] if ok else [{"prompt": 1, "position": 17, "gap": 3.2}],
        "worst_regret": 0.001 if ok else 3.2,
        "tolerance": 0.0123,
        "excess": None,
        "acceptance_length": 2.5,
        "acceptance": None,
        "distribution": None,
    }


def add_scores(run: Path) -> None:
    """An evaluation of two arms: 40 items, of which they answer some differently."""
    generated = RunDirectory.create(run, "items", begun(*ARMS[:2]))
    for arm in ARMS[:2]:
        block = chain_block([2, 1, 0], num_requests=8)
        block["requests"] = [{**row, "prompt_id": f"gsm8k/{row['request_id']}/0"} for row in block["requests"]]
        generated.append(arm, 0, **block)
    generated.finish(None)
    items = [
        {"arm": arm, "task": "gsm8k", "item": i, "filter": "strict-match", "metric": "exact_match", "version": "3.0"}
        | {"num_fewshot": 5, "value": float((i + (arm == EAGLE) * (i % 13 == 0)) % 4 > 0), "output_sha256": f"{i}"}
        | {"num_output_tokens": 30, "higher_is_better": True}
        for arm in ARMS[:2]
        for i in range(40)
    ]
    pd.DataFrame(items)[list(ACCURACY_SCHEMA.names)].to_parquet(run / "accuracy.parquet")
    directory = RunDirectory.open(run)
    asked = EvalConfig(tasks=(TaskLimit(name="gsm8k"),))
    record = EvaluationRecord(asked=asked, items=generated.path.name, lm_eval="0.4.9", sha256="")
    directory.put(replace(directory.record, purpose=Purpose(evaluation=record)))


def add_trace(run: Path) -> None:
    """A trace of the EAGLE arm."""
    folder = run / "profile" / "eagle"
    folder.mkdir(parents=True)
    write_profile(eagle_profile(), folder)


def broken_runs(folder: Path, good: Path) -> Mapping[str, Path]:
    """Folders that cannot be read, by what is wrong with them."""
    names = ("no manifest", "half a manifest", "other schema", "no arms", "half a table", "results of another shape")
    found = {name: folder / f"20260101T0000{n:02d}Z-broken-{n:08x}" for n, name in enumerate(names)}
    for name, path in found.items():
        shutil.copytree(good, path)
        manifest_file, raw = path / "run.json", json.loads((good / "run.json").read_text(encoding="utf-8"))
        if name == "no manifest":
            manifest_file.unlink()
        elif name == "half a manifest":
            manifest_file.write_text(json.dumps(raw)[:200], encoding="utf-8")
        elif name == "other schema":
            manifest_file.write_text(json.dumps({**raw, "schema": "specbench.run/9"}), encoding="utf-8")
        elif name == "no arms":
            manifest_file.write_text(json.dumps({k: v for k, v in raw.items() if k != "arms"}), encoding="utf-8")
        elif name == "half a table":
            (path / "steps.parquet").write_bytes((good / "steps.parquet").read_bytes()[:500])
        else:
            raw["results"]["arms"], raw["results_sha256"] = [{"label": "no-spec"}], None
            manifest_file.write_text(json.dumps(raw), encoding="utf-8")
    return found


def whole_sample(folder: Path) -> Path:
    """A folder of runs with everything that the pages show."""
    runs = folder / "runs"
    runs.mkdir(parents=True)
    first = finished_run(runs, started="2026-02-01T00:00:00Z", sha="a" * 40)
    for n, concurrency in enumerate((8, 64)):
        finished_run(runs, started=f"2026-02-01T0{n + 1}:00:00Z", concurrency=concurrency, sha="a" * 40)
    for n in range(24):
        sha = f"{n:02x}" * 20
        scale = (1.0 if n < 12 else 1.06) * (1 + 0.002 * ((n * 7) % 5 - 2))
        copied(first, runs, n, started=f"2026-02-{n + 2:02d}T00:00:00Z", sha=sha, scale=scale)
    newest = sorted(runs.glob("*-copy-*"))[-1]
    for extra in (add_certificate, add_scores, add_trace):
        extra(newest)
    experiment_run(runs, change=0.03)
    return runs
