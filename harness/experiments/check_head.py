"""Checks a head's files, tries the head on its target, and measures its acceptance on the prompts of workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from specbench.harness.registry import WORKLOADS, lookup
from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import Remaining
from specbench.harness.run.runner import block_name
from specbench.harness.spec.commands import CheckHeadOptions
from specbench.harness.store.files import write_json
from specbench.harness.store.writing import check_writable, writing
from specbench.harness.training.check import HeadReport, check_head, find_head
from specbench.harness.training.evaluate import HeadEvaluation, Outputs, answers, evaluation_of, pooled
from specbench.harness.training.load import LoadedTarget, load_for_training
from specbench.harness.training.model_card import ACCEPTANCE, check_has_card, write_model_card
from specbench.workloads.assets.resolve import resolve
from specbench.workloads.assets.table import asset_of_workload
from specbench.workloads.base import Workload, WorkloadRequest
from specbench.workloads.mixture import interleave

_PROMPTS = (
    "What is the capital of France, and what is it known for?",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "A shop sells pens at 3 dollars each. Anna buys 4 pens and pays with a 20 dollar bill. How much does she get back?",
    "Explain how a bicycle stays upright.",
)


class TriedHead(NamedTuple):
    folder: Path
    report: HeadReport
    evaluations: list[HeadEvaluation]


def try_head(head: Path, options: CheckHeadOptions, progress: Progress) -> TriedHead:
    """`head`: a folder, a hub name, or shipped:NAME. ValueError if the head cannot be loaded; with `write` also if
    the results could not be stored."""
    if options.write and not options.evaluate:
        raise ValueError("write: there is nothing to store without --evaluate N")
    texts = options.workloads if options.evaluate else ()
    for text in texts:
        lookup(WORKLOADS, text.partition("=")[0], "workload")
    head = find_head(str(head), progress.asset)  # before the target is loaded
    if options.write:
        check_has_card(head)
        check_writable("write", head)
    progress.say(f"loading {options.target}")
    loaded = load_for_training(options.target, options.device, options.dtype, progress.asset)
    workloads = {text: _workload(text, loaded, options, progress) for text in texts}
    prompts = [loaded.tokenizer.apply_chat_template([{"role": "user", "content": text}]) for text in _PROMPTS]
    progress.say(f"checking {head.name} on {len(prompts)} prompts")
    report = check_head(head, loaded.model, [tuple(ids) for ids in prompts], loaded.stop_token_ids, k=options.k)
    return TriedHead(head, report, _evaluate(head, loaded, workloads, options, progress))


def store_evaluations(folder: Path, evaluations: Sequence[HeadEvaluation]) -> None:
    """Stores them in the head's folder, and rewrites its model card."""
    with writing("write", folder):
        write_json(folder / ACCEPTANCE, evaluations)
        write_model_card(folder)


def _workload(text: str, loaded: LoadedTarget, options: CheckHeadOptions, progress: Progress) -> Workload:
    """`text`: NAME or NAME=PATH."""
    name, _, path = text.partition("=")
    request = WorkloadRequest(
        name=name,
        path=path or None,
        num_prompts=options.evaluate,
        seed=options.seed,
        output_len=options.output_len,
        max_model_len=2048,
    )
    load = lookup(WORKLOADS, name, "workload")
    asset = asset_of_workload(name)
    if asset is not None and not path:
        resolve(asset.name, progress=progress.asset)
    found: Workload = load(request, loaded.tokenizer)
    return found


def _evaluate(
    head: Path, loaded: LoadedTarget, workloads: Mapping[str, Workload], options: CheckHeadOptions, progress: Progress
) -> list[HeadEvaluation]:
    """Of each workload at each temperature; of several workloads also together."""
    found: list[HeadEvaluation] = []
    done: dict[float, list[Outputs]] = {temperature: [] for temperature in options.temperatures}
    num, remaining = len(workloads) * len(done), Remaining(name for name in workloads for _ in done)
    for name, workload in workloads.items():
        for temperature, parts in done.items():
            left = remaining.begin(name)
            place = Place(f"{name} at temperature {temperature}", {"part": (len(found) + 1, num)}, remaining.left_s)
            progress.at(place)
            progress.start_block(block_name(place) + left, options.evaluate)
            parts.append(
                answers(
                    head,
                    loaded.model,
                    workload,
                    stop_token_ids=loaded.stop_token_ids,
                    k=options.k,
                    temperature=temperature,
                    seed=options.seed,
                    on_done=progress.request_done,
                )
            )
            found.append(evaluation_of(workload, parts[-1], options.k, temperature))
    if len(workloads) > 1:
        whole = _together(workloads)
        found += [evaluation_of(whole, pooled(parts), options.k, temperature) for temperature, parts in done.items()]
    return found


def _together(workloads: Mapping[str, Workload]) -> Workload:
    """The same prompts as one workload."""
    whole = interleave(workloads)
    name = ",".join(workload.name for workload in workloads.values())
    return replace(whole, name=name, rule="all of these prompts")
