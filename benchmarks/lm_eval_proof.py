"""lm-eval's own command line over our engine and over its `hf` model: same weights, same GSM8K items, fp32 on the CPU.

    python benchmarks/lm_eval_proof.py --items 0-19,44 --work DIR --out FILE.md [--prompt "--num_fewshot 5"]

Wherever both generated the same text, both must have the same scores; exit code 1 where that does not hold. Outputs
that DIR holds already are not generated again. Few-shot rows: SPECBENCH_GSM8K_TRAIN, as for `specbench-lm-eval`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specbench.workloads.assets.model_source import resolve_model

FILTERS = ("strict-match", "flexible-extract")
SIDES = {
    "specbench": "strategy=eagle,k=4,dtype=float32 --device cpu --batch_size 8",
    "hf": "pretrained={model},dtype=float32 --device cpu --batch_size 1",
}
Samples = dict[int, dict[str, Any]]


def command(side: str, items: list[int], prompt: str, model: Path, work: Path) -> list[str]:
    """Arguments of `specbench-lm-eval`."""
    given = shlex.split(SIDES[side].format(model=model))
    samples = json.dumps({"gsm8k": items}, separators=(",", ":"))
    task = f"--tasks gsm8k {prompt} --samples '{samples}' --log_samples --output_path {work / side}"
    return ["run", "--model", side, "--model_args", *given, *shlex.split(task)]


def read_samples(folder: Path) -> Samples:
    """By item: the text, and the score of each filter. The newest run of the folder counts."""
    found: Samples = {}
    newest = max(folder.rglob("samples_gsm8k_*.jsonl"), key=lambda path: path.stat().st_mtime)
    for line in newest.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        item = found.setdefault(sample["doc_id"], {"text": sample["resps"][0][0]})
        item[sample["filter"]] = int(sample["exact_match"])
    return found


def table(ours: Samples, theirs: Samples) -> tuple[list[str], list[int]]:
    """Markdown rows and the items whose texts are the same but whose scores are not."""
    lines = [
        "| item | same text | specbench: strict, flexible | hf: strict, flexible |",
        "| ---: | --- | --- | --- |",
    ]
    wrong = []
    for item in sorted(ours):
        same = ours[item]["text"] == theirs[item]["text"]
        mine, other = ([side[item][name] for name in FILTERS] for side in (ours, theirs))
        lines.append(f"| {item} | {'yes' if same else 'no'} | {mine[0]}, {mine[1]} | {other[0]}, {other[1]} |")
        if same and mine != other:
            wrong.append(item)
    return lines, wrong


def report(ours: Samples, theirs: Samples, commands: list[list[str]], model: str) -> tuple[str, bool]:
    assert ours.keys() == theirs.keys(), "the two sides answered other items"
    lines, wrong = table(ours, theirs)
    num_same = sum(ours[item]["text"] == theirs[item]["text"] for item in ours)
    right = [item for item in ours if any(ours[item][name] for name in FILTERS)]
    versions = ", ".join(f"{name} {version(name)}" for name in ("lm_eval", "torch", "transformers"))
    head = [
        "# lm-eval over our engine and over its own `hf` model",
        "",
        f"SmolLM2-135M-Instruct ({model}), fp32 on a CPU, GSM8K test. {versions}.",
        "",
        *("```", *(shlex.join(["specbench-lm-eval", *words]) for words in commands), "```"),
        "",
        f"* {num_same} of {len(ours)} texts are the same, character by character.",
        f"* Same text, other score: {', '.join(map(str, wrong)) or 'none'}.",
        f"* Items that our side gets right under a filter: {', '.join(map(str, sorted(right))) or 'none'}.",
        "",
    ]
    return "\n".join([*head, *lines, ""]), not wrong


def parse_items(text: str) -> list[int]:
    spans = [part.split("-") for part in text.split(",")]
    return sorted({item for span in spans for item in range(int(span[0]), int(span[-1]) + 1)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=parse_items, required=True, help="as 0-19,44")
    parser.add_argument("--prompt", default="--num_fewshot 5", help="lm-eval's options of the prompt")
    parser.add_argument("--work", type=Path, required=True, help="where lm-eval puts its outputs")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    source = resolve_model("smollm2-135m-instruct")
    commands = [command(side, asked.items, asked.prompt, source.path, asked.work) for side in SIDES]
    for side, words in zip(SIDES, commands, strict=True):
        if not list((asked.work / side).rglob("samples_gsm8k_*.jsonl")):
            subprocess.run([sys.executable, "-m", "specbench.harness.quality.lm_evaluation.cli", *words], check=True)
    ours, theirs = (read_samples(asked.work / side) for side in SIDES)
    text, ok = report(ours, theirs, commands, f"{source.source}, sha256 {source.sha256[:12]}")
    asked.out.write_text(text.replace(str(Path.home()), "~"), encoding="utf-8")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
