"""The one path from result files to a stored run: one arm per result, with factors relative to one of them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specbench.harness.metrics.run_results import results
from specbench.harness.registry import BASELINE
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.arm_record import ArmRecord, EngineFacts, Fact, ImportRecord
from specbench.harness.store.codec import to_document
from specbench.harness.store.environment import Environment, Gpu, Hardware
from specbench.harness.store.files import sha256_json
from specbench.harness.store.inputs_record import ModelRecord, SamplingRecord, WorkloadRecord
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord
from specbench.harness.store.writing import writing
from specbench.harness.text import nearest
from specbench.workloads.assets.cache import read_sha256

from .checks import check_requests
from .formats import read_results
from .meta import Meta, common, completed, difference, parse_meta
from .pairing import Pairing, own_ids, pair, unpaired
from .result import Result
from .rows import all_steps, counter_rows, request_rows, starts_s

_UNKNOWN = {fact: "not in the file" for fact in Fact if fact is not Fact.ACCEPTANCE}


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """A result with its file and label, and its metadata from the file and --meta."""

    label: str
    file: Path
    result: Result
    meta: Meta

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which --baseline and --meta may refer to it."""
        return tuple(dict.fromkeys((self.label, str(self.file), self.file.name, self.file.stem)))


def import_files(
    files: Sequence[Path],
    output_dir: Path,
    argv: Sequence[str],
    labels: Sequence[str] = (),
    baseline: str = "",
    meta: Sequence[str] = (),
) -> Path:
    """Writes one run directory and returns its path. `labels`: one per file, or none. `baseline`: a file or a label;
    empty: the first arm without speculation, else the first. On a ValueError, which names the file, nothing is
    written."""
    arms = _with_meta(_labelled(files, labels), meta)
    base = _baseline(arms, baseline)
    starts = {arm.label: starts_s(arm.result) for arm in arms}
    pairings = {arm.label: _pairing(arm, base) for arm in arms}
    records = [_record(arm, base, pairings[arm.label].how, starts[arm.label][1]) for arm in arms]
    with writing("output_dir", output_dir):
        directory = RunDirectory.create(output_dir, "import", _begun(arms, records, argv))
    try:
        for arm in arms:
            at = starts[arm.label][0]
            directory.append(
                arm.label,
                0,
                requests=list(request_rows(arm.result, at, pairings[arm.label].prompt_ids)),
                steps=all_steps(arm.result, at),
                counters=list(counter_rows(arm.result)),
            )
        directory.finish(results(directory.frames()))
    except BaseException:  # also Ctrl-C: nothing else can complete it
        shutil.rmtree(directory.path)
        raise
    return directory.path


def _labelled(files: Sequence[Path], labels: Sequence[str]) -> list[Arm]:
    if labels and len(labels) != len(files):
        raise ValueError(f"label: {len(labels)} for {len(files)} files; allowed: one per file, in order")
    if twice := [label for label, num in Counter(labels).items() if num > 1]:
        raise ValueError(f"label: {twice[0]!r} is given twice; allowed: a different one for each file")
    arms: list[Arm] = []
    known: dict[str, str] = {}
    for n, file in enumerate(files):
        file_results = read_results(file)
        for number, result in enumerate(file_results, 1):
            where = str(file) if len(file_results) == 1 else f"{file}, result {number}"
            check_requests(result.requests, where)
            content = sha256_json(to_document(result))
            if content in known and (result.requests or result.own):  # nothing tells results of neither apart
                raise ValueError(f"files: {where} is {known[content]} again, or a copy of it; it is one measurement")
            known[content] = where
            stem = labels[n] if labels else result.label or file.stem
            label = stem if len(file_results) == 1 else f"{stem} #{number}"
            used = {arm.label for arm in arms}
            copies = next(m for m in range(1, len(arms) + 2) if (label if m == 1 else f"{label} ({m})") not in used)
            label = label if copies == 1 else f"{label} ({copies})"
            arms.append(Arm(label=label, file=file, result=result, meta=result.meta))
    return arms


def _with_meta(arms: Sequence[Arm], texts: Sequence[str]) -> list[Arm]:
    names = {name for arm in arms for name in arm.names}
    given = [parse_meta(text, names) for text in texts]
    return [
        replace(arm, meta=completed(arm.meta, [one for one in given if one.about(arm.names)], arm.label))
        for arm in arms
    ]


def _baseline(arms: Sequence[Arm], name: str) -> Arm:
    if not name:
        return next((arm for arm in arms if arm.meta.strategy == BASELINE), arms[0])
    exact = [arm for arm in arms if arm.label == name]
    matches = exact or [arm for arm in arms if name in arm.names]
    if len(matches) != 1:
        labels = [arm.label for arm in arms]
        what = "matches several of these" if matches else f"matches none of these{nearest(name, labels)}"
        raise ValueError(f"baseline: {name!r} {what}; allowed: {', '.join(labels)}")
    return matches[0]


def _pairing(arm: Arm, base: Arm) -> Pairing:
    ids = own_ids(base.label, base.result.requests)
    if arm is base:
        return Pairing(prompt_ids=ids, how="")
    if difference(base.meta, arm.meta):
        return unpaired(arm.label, arm.result.requests, "")
    return pair(arm.label, arm.result, base.result, ids)


def _record(arm: Arm, base: Arm, how: str, of_starts: str) -> ArmRecord:
    result, meta = arm.result, arm.meta
    other_load = difference(base.meta, meta)
    notes = [f"imported: {result.tool}", *result.notes]
    if of_starts and result.requests:
        notes.append(of_starts)
    if other_load:
        notes.append(f"no factor against {base.label}: {other_load}")
    elif how:
        notes.append(how)
    if queued := [one.queue_s for one in result.requests if one.queue_s is not None and one.is_served]:
        mean, p99 = 1e3 * float(np.mean(queued)), 1e3 * float(np.percentile(queued, 99))
        notes.append(f"queued in the client: mean {mean:.1f} ms, p99 {p99:.1f} ms")
    known = {Fact.TOKEN_IDS} if any(one.text is not None for one in result.requests) else set()
    config = {"command": meta.command} if meta.command else {}
    return ArmRecord(
        label=arm.label,
        strategy=meta.strategy or result.tool,
        config=ArmSetup(num_drafts=meta.num_speculative_tokens, engine=meta.engine, driven="HTTP"),
        notes=tuple(notes),
        engine=EngineFacts(
            version=meta.engine_version, graph_mode=None, backend=None, hardware=meta.hardware, config=config
        ),
        unknown={fact: reason for fact, reason in _UNKNOWN.items() if fact not in known},
        imported=ImportRecord(
            source=result.tool,
            file=arm.file.name,
            sha256=read_sha256(arm.file),
            baseline=None if arm is base or other_load else base.label,
            reported=result.own,
        ),
    )


def _begun(arms: Sequence[Arm], records: Sequence[ArmRecord], argv: Sequence[str]) -> RunRecord:
    alike = common([arm.meta for arm in arms])
    tools = dict.fromkeys(arm.result.tool for arm in arms)
    nums = {len(arm.result.requests) for arm in arms}
    return RunRecord(
        argv=tuple(argv),
        model=ModelRecord(name=alike.model),
        environment=Environment(hardware=Hardware(gpus=(Gpu(name=alike.hardware),)) if alike.hardware else None),
        workload=WorkloadRecord(
            name=alike.dataset or " and ".join(tools),
            rule="as reported to the client",
            source=", ".join(dict.fromkeys(arm.file.name for arm in arms)),
            num_prompts=nums.pop() if len(nums) == 1 else None,
        ),
        sampling=SamplingRecord(
            temperature=alike.temperature, max_concurrency=alike.max_concurrency, request_rate=alike.request_rate
        ),
        started_utc=min(filter(None, (arm.result.started_utc for arm in arms)), default=""),
        arms=tuple(records),
    )
