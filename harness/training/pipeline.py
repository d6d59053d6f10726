"""From data sets to a head on disk, in stages that each leave their result: conversations, responses, training, export.

OUT/responses/   parquet shards and responses.json (which options they were made with)
OUT/checkpoint.pt   while training; removed once the head is written
OUT/             config.json, model.safetensors, training.json, training_log.csv, README.md
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from specbench.harness.engines.native.models.config import read_config
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.registry import BASELINE
from specbench.workloads.assets.cache import Progress
from specbench.workloads.json_values import Json, JsonObject

from .batches import Batches
from .config import GenerateConfig, TrainConfig
from .conversations import Selection, excluded_keys, find_data, select
from .dialogue import ChatTokenizer
from .draft_vocab import DraftVocab, most_frequent
from .engines import throughput_engine
from .export import write_head
from .generate import GenerateStats, Generation
from .head_module import HeadModule, HeadShape
from .model_card import LOG, TRAINING, write_json, write_model_card
from .shards import Sequences, read_sequences, shard_paths
from .target_pass import Teacher
from .trainer import LogRow, Trainer

_EXPORT_S = 15.0  # kept back from a budget for loading, export and the last checkpoint


class Watcher(Protocol):
    """What a training tells whoever watches it."""

    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None: ...

    def generated(self, stats: GenerateStats, num_samples: int) -> None: ...

    def trained(self, row: LogRow) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedTarget:
    """The target to train for. `described` holds name, hub_name, source, sha256."""

    model: LlamaModel
    model_dir: Path
    tokenizer: ChatTokenizer
    stop_token_ids: tuple[int, ...]
    described: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One call of the command.

    Budgets are in seconds; `generate_budget_s` is part of `budget_s`, and 0 asks for what is on disk, whole or not.
    """

    generate: GenerateConfig
    train: TrainConfig
    out: Path
    responses: Path
    command: str
    licence: str = "apache-2.0"
    budget_s: float = math.inf
    generate_budget_s: float = math.inf
    resume: bool = False
    only_responses: bool = False


def train_head(job: Job, target: LoadedTarget, watcher: Watcher) -> Path | None:
    """Runs the stages that are not done yet; returns the head's folder, None after `only_responses`.

    Raises ValueError for folders that hold something else, and for options that do not fit what they hold.
    """
    start = time.perf_counter()
    _check_folders(job)
    selection, data = _select(job, watcher)
    _make_responses(job, target, selection, watcher)
    if job.only_responses:
        return None
    sequences = read_sequences(job.responses)
    vocab = most_frequent(sequences, job.train.draft_vocab_size, target.model.config.vocab_size)
    watcher.say(
        f"{len(sequences):,} sequences, {int(sequences.is_response_T.sum()):,} response tokens; draft vocabulary "
        f"covers {vocab.coverage:.2%}"
    )
    trainer = make_trainer(job.train, target.model, sequences, vocab, job.out)
    if job.resume and (job.out / "checkpoint.pt").is_file():
        trainer.resume()
        watcher.say(f"going on after step {trainer.step:,} of {trainer.num_steps:,}")
    left_s = job.budget_s - (time.perf_counter() - start) - _EXPORT_S
    trainer.run(max(left_s, 1.0), watcher.trained)
    _export(job, target, trainer, vocab)
    record = _record(job, target, trainer, vocab, sequences, selection, data)
    write_json(job.out / TRAINING, record)
    write_model_card(job.out)
    (job.out / "checkpoint.pt").unlink(missing_ok=True)
    return job.out


def make_trainer(
    config: TrainConfig, target: LlamaModel, sequences: Sequences, vocab: DraftVocab, out: Path
) -> Trainer:
    """A trainer at step 0, its weights drawn by the config's seed."""
    shape = HeadShape.of(target.config, len(vocab.target_id_Vd), config.intermediate_size)
    generator = torch.Generator().manual_seed(config.seed)
    with torch.no_grad():
        # The rows of lm_head, whatever layout the target keeps them in: its product with the identity.
        eye = torch.eye(target.config.hidden_size, dtype=target.dtype, device=target.device)
        lm_head_VH = target.logits(eye).t()[vocab.target_id_Vd.to(target.device)]
    module = HeadModule(shape, lm_head_VH, target.norm_H, generator)
    teacher = Teacher(target, vocab.target_id_Vd, vocab.draft_id_V, config.max_sequence_tokens + 64)
    batches = Batches(sequences, config.batch_tokens, config.max_sequence_tokens, config.unroll, config.seed)
    return Trainer(config, module, teacher, batches, out / "checkpoint.pt", out / LOG)


def _check_folders(job: Job) -> None:
    if not job.resume and ((job.out / "model.safetensors").exists() or (job.out / "checkpoint.pt").exists()):
        raise ValueError(f"out: {job.out} already holds a head or a checkpoint; give another --out, or --resume")
    job.out.mkdir(parents=True, exist_ok=True)
    job.responses.mkdir(parents=True, exist_ok=True)
    described = _read_described(job.responses)
    if not described and shard_paths(job.responses):
        raise ValueError(f"responses: {job.responses} holds shards but no responses.json; give another --responses")
    if described and described["fingerprint"] != job.generate.fingerprint:
        raise ValueError(
            f"responses: {job.responses} was made with other options ({described['config']}); give the same, or "
            "another --responses"
        )


def _read_described(folder: Path) -> dict[str, Json]:
    path = folder / "responses.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def _select(job: Job, watcher: Watcher) -> tuple[Selection, list[dict[str, str | int]]]:
    c = job.generate
    progress: Progress = watcher.asset
    sources = [find_data(text, c.samples_per_prompt, progress) for text in c.data]
    excluded = excluded_keys(c.exclude, lambda name: find_data(name, 1, progress))
    selection = select(sources, excluded, c.num_prompts, c.max_turns, c.seed)
    if not selection.conversations:
        raise ValueError(f"data: nothing is left of {', '.join(c.data)} once evaluation texts are taken out")
    return selection, [source.described() for source in sources]


def _make_responses(job: Job, target: LoadedTarget, selection: Selection, watcher: Watcher) -> None:
    described = _read_described(job.responses)
    if described.get("done") or (job.generate_budget_s == 0 and shard_paths(job.responses)):
        watcher.say(f"responses are there: {job.responses}")
        return
    c = job.generate
    head: dict[str, Json] = {"fingerprint": c.fingerprint, "config": dataclasses.asdict(c), "target": target.described}
    write_json(job.responses / "responses.json", head)
    if target.model.config.max_position < c.max_prompt_tokens + c.max_response_tokens:
        raise ValueError(
            f"max_prompt_tokens: {c.max_prompt_tokens} + {c.max_response_tokens} response tokens are more than the "
            f"target's {target.model.config.max_position} positions"
        )
    engine = throughput_engine(
        target.model,
        BASELINE,
        {},
        max_num_seqs=c.generate_batch,
        max_model_len=c.max_prompt_tokens + c.max_response_tokens + 1,
    )
    num_samples = sum(conversation.num_samples for conversation in selection.conversations)
    generation = Generation(engine, target.tokenizer, target.stop_token_ids, c, job.responses)
    budget_s = min(job.generate_budget_s, job.budget_s)
    stats = generation.run(selection.conversations, budget_s, lambda s: watcher.generated(s, num_samples))
    watcher.generated(stats, num_samples)
    write_json(job.responses / "responses.json", {**head, "done": stats.done, "last_call": dataclasses.asdict(stats)})
    # The engine's caches and graphs must be gone before training wants the memory.
    del generation, engine
    gc.collect()
    if target.model.device.type == "cuda":
        torch.cuda.empty_cache()


def _export(job: Job, target: LoadedTarget, trainer: Trainer, vocab: DraftVocab) -> None:
    raw = read_config(target.model_dir)[1]
    write_head(job.out, trainer.module, vocab, raw, torch.bfloat16)


def _record(
    job: Job,
    target: LoadedTarget,
    trainer: Trainer,
    vocab: DraftVocab,
    sequences: Sequences,
    selection: Selection,
    data: list[dict[str, str | int]],
) -> JsonObject:
    shape, device = trainer.module.shape, target.model.device
    generate = dataclasses.asdict(job.generate)
    # Names, not the folders of the machine where the files lay.
    for key in ("data", "exclude"):
        generate[key] = [Path(text).name if "/" in text else text for text in generate[key]]
    return {
        "command": job.command,
        "licence": job.licence,
        "target": target.described,
        "head": {
            **dataclasses.asdict(shape),
            "aux_layers": list(target.model.config.aux_layers),
            "coverage": vocab.coverage,
        },
        "data": data,
        "selection": {
            "num_conversations": len(selection.conversations),
            "num_held_out": selection.num_held_out,
            "num_excluded": selection.num_excluded,
            "num_duplicates": selection.num_duplicates,
        },
        "generate": generate,
        "responses": {
            "num_sequences": len(sequences),
            "num_tokens": len(sequences.token_T),
            "num_response_tokens": int(sequences.is_response_T.sum()),
            "looped_share": float(sequences.looped_N.mean()),
            "greedy_share": float(sequences.greedy_N.mean()),
            "num_cut_tokens": sequences.num_cut_tokens,
        },
        "train": dataclasses.asdict(job.train),
        "run": {
            "steps": trainer.step,
            "planned_steps": trainer.num_steps,
            "num_positions": trainer.num_positions,
            "seconds": round(trainer.seconds, 1),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU",
            "torch": torch.__version__,
        },
    }
