"""What the scripts of witnesses share: our rounds on held-out ShareGPT prompts, and the record of both sides."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_agreement import NEAR_TIE, gap_in_target
from kept_rounds import Side, agreement, read, said

import specbench
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.schema import hash_token_ids
from specbench.results import Run
from specbench.workloads.assets.shipped_heads import shipped_folder

MODEL, HEAD = "smollm2-135m-instruct", "shipped:smollm2-135m-instruct"
_INTEGERS = re.compile(r"\[[\d,\s]+\]")


@dataclass(frozen=True)
class Witnessed:
    """Of one arm of ours. `asked`: the same in the witness' words; `rounds`: by the workload's name of the prompt."""

    arm: str
    asked: str
    rounds: Mapping[str, Side]


def options(doc: str, out: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-prompts", type=int, default=12)
    parser.add_argument("--output-len", type=int, default=96)
    parser.add_argument("--out", type=Path, default=out)
    return parser


def measured(arms: Sequence[str], given: argparse.Namespace, **more: Any) -> Run:
    """One repeat in fp32, one request at a time: with near-ties as rare as they can be."""
    return specbench.run(
        strategy=list(arms),
        model=MODEL,
        dtype="float32",
        dataset_name="sharegpt-held-out",
        num_prompts=given.num_prompts,
        output_len=given.output_len,
        max_concurrency=1,
        num_repeats=1,
        warmup_max_s=0.1,
        output_dir=tempfile.mkdtemp(),
        **more,
    )


def rounds_of(run: Run, arm: str) -> dict[str, Side]:
    """By prompt, of a run of one repeat. ValueError where the arm failed."""
    if error := run.record.arm(arm).error:
        raise ValueError(f"{arm}: {error}")
    steps = run.steps[(run.steps["arm"] == arm) & ~run.steps["is_prefill"]].sort_values("step")
    accepted = {request: [int(n) for n in of["num_accepted"]] for request, of in steps.groupby("request_id")}
    requests = run.requests[run.requests["arm"] == arm]
    columns = (requests[name] for name in ("request_id", "prompt_id", "output_token_ids"))
    return {
        prompt: {"tokens": [int(token) for token in tokens], "accepted": accepted.get(request, [])}
        for request, prompt, tokens in zip(*columns, strict=True)
    }


def prompts_of(run: Run) -> dict[str, list[int]]:
    return {
        name: [int(token) for token in ids]
        for name, ids in zip(run.prompts["prompt_id"], run.prompts["token_ids"], strict=True)
    }


def keep(file: Path, run: Run, witness: Mapping[str, str], arms: Sequence[Witnessed], command: str) -> int:
    """Writes `file` and the same for readers beside it. 1 where a token, or an accepted count, differs and the target's
    logits are not nearly tied; else 0."""
    record, prompts = run.record, prompts_of(run)
    packages = record.environment.software.packages
    assert record.git is not None and record.model is not None and record.workload is not None
    kept: dict[str, Any] = dict(
        witness=dict(witness),
        specbench=dict(commit=record.git.sha, torch=packages["torch"]),
        command=command,
        conditions=dict(
            model=record.model.source,
            model_sha256=record.model.sha256,
            head=HEAD,
            head_sha256=hashlib.sha256((shipped_folder(HEAD) / "model.safetensors").read_bytes()).hexdigest(),
            dtype=record.model.dtype,
            sampling="greedy",
            prompts=record.workload.name,
            prompts_sha256=record.workload.sha256,
            cpu=record.environment.hardware.cpu.model,
        ),
        arms=[
            dict(
                arm=one.arm,
                asked=one.asked,
                prompts=[
                    dict(id=name, sha256=hash_token_ids(prompts[name]), specbench=side, witness=one.rounds[name])
                    for name, side in rounds_of(run, one.arm).items()
                ],
            )
            for one in arms
        ],
    )
    unexplained = _explain(kept["arms"], run)
    text = _INTEGERS.sub(lambda found: re.sub(r"\s+", "", found[0]), json.dumps(kept, indent=1))
    file.write_text(text + "\n", encoding="utf-8")
    file.with_suffix(".md").write_text(markdown(read(file)), encoding="utf-8")
    print("\n".join([*_lines(kept), *(f"NOT EXPLAINED: {line}" for line in unexplained)]))
    return int(bool(unexplained))


def _explain(arms: list[dict[str, Any]], run: Run) -> list[str]:
    """Adds to each arm where the sides part, with the distance in the target's logits; what that does not explain."""
    found = [(arm, one) for arm in arms for one in agreement(arm).differences]
    assert isinstance(run.record.config, RunConfig)
    gap = gap_in_target(run.record.config) if found else None
    left = []
    for arm in arms:
        arm["parted"] = []
    for arm, one in found:
        distance = gap(one) if gap and one.what == "token" else None
        arm["parted"].append(dict(prompt=one.prompt_id, at=one.at, what=one.what, gap=distance))
        if distance is None or distance >= NEAR_TIE:
            left.append(f"{arm['arm']}: {one}; gap {distance}")
    return left


def _lines(record: Mapping[str, Any]) -> list[str]:
    return [f"{arm['arm']} ({arm['asked']}): {said(agreement(arm))}" for arm in record["arms"]]


def markdown(record: Mapping[str, Any]) -> str:
    name, *versions = record["witness"].items()
    about = ", ".join(f"{key} {value}" for key, value in versions)
    conditions = record["conditions"]
    ties = [
        f"* {arm['arm']}: {one['prompt']} parts behind {one['at']} tokens, logits {one['gap']:.2g} apart"
        for arm in record["arms"]
        for one in arm["parted"]
        if one["gap"] is not None
    ]
    lines = [
        f"# {name[1]}, round by round against specbench",
        "",
        f"{about}; specbench {record['specbench']['commit'][:12]}, torch {record['specbench']['torch']}.",
        f"{conditions['model']} with the shipped head, {conditions['dtype']}, {conditions['sampling']}, one request "
        f"at a time, {len(record['arms'][0]['prompts'])} prompts of {conditions['prompts']}; {conditions['cpu']}.",
        "",
        f"    {record['command']}",
        "",
        *(f"* {line}" for line in _lines(record)),
        *ties,
    ]
    return "\n".join(lines) + "\n"
