"""Interleaved pairs of two checkouts' own engines: python benchmarks/pairs_h200.py --old DIR --new DIR -o pairs.json

One persistent process a version and batch size, warmed up; one of them measures a block at a time, in random order
within a pair. Ratios are new / old of the medians over blocks, intervals bootstrapped over pairs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ARM = "eagle:k=4,head=random,acceptance=synthetic:3.0"
FIGURES = ("round_ms", "decode_tps", "tps", "wall_s")


class Silent:
    is_quiet = True

    def __getattr__(self, name):
        return lambda *args, **named: None


def settings(options, batch: int) -> tuple[dict, dict]:
    common = dict(
        model=options.model,
        load_format="dummy",
        max_concurrency=batch,
        ignore_eos=True,
        num_repeats=1,
        warmup_max_s=6.0,
        device=options.device,
    )
    workload = dict(
        num_prompts=max(batch * 2, options.prompts),
        max_model_len=512,
        random_input_len=options.input,
        random_output_len=options.output_len,
        seed=42,
    )
    return common, workload


def old_blocks(options, batch: int):
    import torch

    from specbench.harness.engine.sampler import SamplingMode
    from specbench.harness.measure.drive import run_block, warm_up
    from specbench.harness.measure.warmup import WarmUp
    from specbench.harness.prepare import prepare
    from specbench.harness.run_config import RunConfig, parse_arm
    from specbench.workloads.base import WorkloadRequest

    common, workload = settings(options, batch)
    config = RunConfig(arms=(parse_arm(ARM, {}),), workload=WorkloadRequest(name="random", **workload), **common)
    run = prepare(config, Silent())
    engine = run.engines[config.arms[0].label]
    with torch.inference_mode():
        engine.launcher.capture([SamplingMode.of([run.load.request(0).sampling])])
        warm_up(engine, run.load, WarmUp(window_s=config.warmup_window_s, max_s=config.warmup_max_s))

    def block():
        with torch.inference_mode():
            rows = run_block(engine, run.load, lambda request: None)
        return rows.requests, rows.steps

    return block, str(run.arms[0].described())


def new_blocks(options, batch: int):
    from specbench.harness.engines.warmup import WarmUp
    from specbench.harness.run.block_sink import BlockSink
    from specbench.harness.run.prepare import prepare
    from specbench.harness.spec.arm import parse_arm
    from specbench.harness.spec.conditions import RunConfig
    from specbench.harness.store.journal import Journal, OpenBlock

    common, workload = settings(options, batch)
    config = RunConfig(arms=(parse_arm(ARM),), dataset_name="random", **workload, **common)
    run = prepare(config, Silent())
    deployment = run.deployments.of(run.arms[0])
    deployment.warm_up(run.load, WarmUp(window_s=config.warmup_window_s, max_s=config.warmup_max_s))

    def block():
        opened = OpenBlock(Journal(Path(f"/tmp/pairs-{os.getpid()}") / "block.jsonl"))
        opened.journal.begin("arm", 0, len(run.load))
        deployment.reset()
        deployment.measure(run.load, BlockSink(opened, Silent()))
        took = time.perf_counter()
        opened.journal.close()
        as_dicts = [[row._asdict() for row in rows] for rows in (opened.requests, opened.steps)]
        return *as_dicts, took

    Path(f"/tmp/pairs-{os.getpid()}").mkdir()
    return block, str(run.arms[0].setup())


def figures(requests: list[dict], steps: list[dict], wall_s: float) -> dict:
    """As metrics.accounting.round_metrics and metrics.latency.throughput_metrics define them."""
    table: dict[int, dict] = {}
    for row in steps:
        entry = table.setdefault(row["step"], dict(row, emitted=0))
        entry["emitted"] += row["num_emitted"]
    rounds, emitted, before = [], 0, None
    for _, step in sorted(table.items()):
        start = step["t_start_ns"] if before is None else before
        if step["kind"] == "decode":
            rounds.append(max(0, step["t_device_ns"] - start))
            emitted += step["emitted"]
        before = step["t_device_ns"]
    window_ns = max(r["t_last_ns"] for r in requests) - min(r["t_submit_ns"] for r in requests)
    said = sorted((r["request_id"], list(r["output_token_ids"])) for r in requests)
    return dict(
        round_ms=median(rounds) / 1e6,
        decode_tps=emitted / sum(rounds) * 1e9,
        tps=sum(r["num_output_tokens"] for r in requests) / window_ns * 1e9,
        wall_s=wall_s,
        num_rounds=len(rounds),
        tokens=hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12],
    )


def child(options) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    block, described = (old_blocks if options.child == "old" else new_blocks)(options, options.batch)
    for _ in range(2):
        block()  # the first has its own costs: instrumented phases
    print(json.dumps(described, default=str), file=answers, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        requests, steps, *end = block()
        wall_s = (end[0] if end else time.perf_counter()) - start
        print(json.dumps(figures(requests, steps, wall_s)), file=answers, flush=True)


def start(options, version: str, batch: int) -> subprocess.Popen:
    words = [sys.executable, __file__, "--child", version, "--batch", str(batch)]
    for name in ("model", "device", "prompts", "input", "output_len"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    root = getattr(options, version).resolve()
    path = ":".join([str(root / ".ns"), *filter(None, [os.environ.get("PYTHONPATH")])])
    log = open(f"/tmp/pairs-{version}-{batch}.log", "w")
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
    )


def ratio(blocks: list[dict], figure: str, rng: random.Random, draws: int = 4000) -> dict:
    """Of medians, new / old, with its 95 % interval over pairs."""
    pairs = [(pair["old"][figure], pair["new"][figure]) for pair in blocks]

    def of(some):
        return median(new for _, new in some) / median(old for old, _ in some)

    drawn = sorted(of(rng.choices(pairs, k=len(pairs))) for _ in range(draws))
    old, new = (median(each) for each in zip(*pairs, strict=True))
    return dict(old=old, new=new, ratio=of(pairs), low=drawn[int(0.025 * draws)], high=drawn[int(0.975 * draws)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--new", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=1e9, help="starts no pair after so many, counted from --go")
    parser.add_argument("--go", type=Path, help="measure once this file exists")
    parser.add_argument("--child", choices=("old", "new"), help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    batches = [int(word) for word in options.batches.split(",")]
    children = {(v, b): start(options, v, b) for b in batches for v in ("old", "new")}
    try:
        arms = {}
        for (v, b), process in children.items():
            line = process.stdout.readline()
            if not line:
                sys.exit(f"{v} at {b} ended: see /tmp/pairs-{v}-{b}.log")
            arms[f"{v} B={b}"] = json.loads(line)
        print(*(f"{name}: {arm}" for name, arm in arms.items()), sep="\n", flush=True)
        while options.go and not options.go.exists():
            time.sleep(0.2)
        measure(options, children, batches, arms)
    finally:
        for process in children.values():
            process.kill()


def measure(options, children, batches, arms) -> None:
    rng, began = random.Random(1), time.monotonic()
    found: dict[str, list[dict]] = {str(b): [] for b in batches}

    def block(v: str, b: int) -> dict:
        children[v, b].stdin.write("go\n")
        children[v, b].stdin.flush()
        return json.loads(children[v, b].stdout.readline())

    for v, b in children:
        block(v, b)
    for _ in range(options.pairs):
        if time.monotonic() - began > options.seconds:
            break
        for b in rng.sample(batches, len(batches)):
            order = rng.sample(["old", "new"], 2)
            found[str(b)].append({"first": order[0], **{v: block(v, b) for v in order}})
        ratios = {b: {f: ratio(pairs, f, random.Random(2)) for f in FIGURES} for b, pairs in found.items() if pairs}
        result = dict(argv=sys.argv[1:], arm=ARM, arms=arms, ratios=ratios, pairs=found)
        options.output.write_text(json.dumps(result, indent=1))
    for b, of in ratios.items():
        for f, r in of.items():
            interval = f"[{r['low']:.4f}, {r['high']:.4f}]"
            print(f"B={b} {f}: old {r['old']:.4f} new {r['new']:.4f} ratio {r['ratio']:.4f} {interval}")
        same = {(p["old"]["tokens"], p["new"]["tokens"]) for p in found[b]}
        print(f"B={b}: {len(found[b])} pairs, {time.monotonic() - began:.0f} s, tokens {same}", flush=True)


if __name__ == "__main__":
    main()
