"""Checks a head's files, tries the head on its target, and measures its acceptance on the prompts of workloads."""

from __future__ import annotations

from pathlib import Path

from specbench.harness.registry import WORKLOADS, lookup
from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import Remaining
from specbench.harness.run.runner import block_name
from specbench.harness.spec.commands import CheckHeadOptions
from specbench.harness.store.files import write_json
from specbench.harness.training.check import HeadReport, check_head, find_head
from specbench.harness.training.evaluate import HeadEvaluation, evaluate_head
from specbench.harness.training.load import LoadedTarget, load_for_training
from specbench.harness.training.model_card import ACCEPTANCE, write_model_card
from specbench.workloads.assets.resolve import resolve
from specbench.workloads.assets.table import asset_of_workload
from specbench.workloads.base import WorkloadRequest

_PROMPTS = (
    "What is the capital of France, and what is it known for?",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "A shop sells pens at 3 dollars each. Anna buys 4 pens and pays with a 20 dollar bill. How much does she get back?",
    "Explain how a bicycle stays upright.",
)


def try_head(head: Path, options: CheckHeadOptions, progress: Progress) -> tuple[HeadReport, list[HeadEvaluation]]:
    """`head`: a folder, a hub name, or shipped:NAME. `write` adds the results to its model card. ValueError if the head
    cannot be loaded."""
    if options.write and not options.evaluate:
        raise ValueError("write: there is nothing to store without --evaluate N")
    head = find_head(str(head), progress.asset)  # before the target is loaded
    progress.say(f"loading {options.target}")
    loaded = load_for_training(options.target, options.device, options.dtype, progress.asset)
    prompts = [loaded.tokenizer.apply_chat_template([{"role": "user", "content": text}]) for text in _PROMPTS]
    progress.say(f"checking {head.name} on {len(prompts)} prompts")
    report = check_head(head, loaded.model, [tuple(ids) for ids in prompts], loaded.stop_token_ids, k=options.k)
    evaluations: list[HeadEvaluation] = []
    workloads = options.workload if options.evaluate else ()
    num, remaining = len(workloads) * len(options.temperatures), Remaining(workloads * len(options.temperatures))
    for name in workloads:
        asset = asset_of_workload(name)  # None for NAME=PATH
        if asset is not None:
            resolve(asset.name, progress=progress.asset)
        for temperature in options.temperatures:
            left = remaining.begin(name)
            place = Place(
                f"{name} at temperature {temperature}", {"part": (len(evaluations) + 1, num)}, remaining.left_s
            )
            progress.at(place)
            progress.start_block(block_name(place) + left, options.evaluate)
            evaluations.append(_evaluate(head, loaded, name, temperature, options, progress))
    if options.write:
        write_json(head / ACCEPTANCE, evaluations)
        write_model_card(head)
    return report, evaluations


def _evaluate(
    head: Path, loaded: LoadedTarget, name: str, temperature: float, options: CheckHeadOptions, progress: Progress
) -> HeadEvaluation:
    name, _, path = name.partition("=")
    request = WorkloadRequest(
        name=name,
        path=path or None,
        num_prompts=options.evaluate,
        seed=options.seed,
        output_len=options.output_len,
        max_model_len=2048,
    )
    return evaluate_head(
        head,
        loaded.model,
        lookup(WORKLOADS, name, "workload")(request, loaded.tokenizer),
        stop_token_ids=loaded.stop_token_ids,
        k=options.k,
        temperature=temperature,
        seed=options.seed,
        on_done=progress.request_done,
    )
