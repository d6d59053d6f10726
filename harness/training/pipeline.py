"""From data sets to a head on disk, in stages that each store their result: conversations, responses, training, export.

OUT/responses/   parquet shards and responses.json (which options they were made with)
OUT/checkpoint.pt   during training; removed once the head is written
OUT/             config.json, model.safetensors, training.json, training_log.csv, README.md
"""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from specbench.harness.engines.native.models.config import read_config
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.registry import BASELINE
from specbench.harness.store.files import write_json
from specbench.harness.store.writing import check_writable, writing
from specbench.workloads.guarded import read_json_object
from specbench.workloads.json_values import JsonObject

from .batches import Batches
from .config import GenerateConfig, TrainConfig, TrainHeadOptions
from .conversations import DataSource, Selection, excluded_keys, find_data, select
from .draft_vocab import DraftVocab, most_frequent
from .engines import throughput_engine
from .export import write_head
from .frozen_target import FrozenTarget
from .generate import GenerateStats, Generation
from .head_module import HeadModule
from .load import LoadedTarget
from .model_card import LOG, TRAINING, write_model_card
from .shards import Sequences, read_sequences, shard_paths
from .trainer import LogRow, Trainer
from .training_targets import TargetSource, gpu_has_room

_HEAD, _CHECKPOINT, _DESCRIBED = "model.safetensors", "checkpoint.pt", "responses.json"
_HEAD_SIZES = ("hidden_size", "intermediate_size", "num_q_heads", "num_kv_heads", "head_dim", "rms_norm_eps")
_EXPORT_S = 15.0  # part of a budget reserved for loading, export and the last checkpoint


class TrainingProgress(Protocol):
    """Receives the progress reports of a training run."""

    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None: ...

    def generated(self, stats: GenerateStats, num_samples: int) -> None: ...

    def trained(self, row: LogRow) -> None: ...


def train_head(options: TrainHeadOptions, command: str, target: LoadedTarget, progress: TrainingProgress) -> Path:
    """Runs the stages that are not done yet; returns the folder of the head, or of the responses (`only_responses`).

    `command` is the command line to record. `check_out` comes first, before the target is loaded. Raises ValueError for
    responses that were made with other options.
    """
    start = time.perf_counter()
    out, responses = options.out, options.responses_folder
    generate = options.generate(target.described["name"], target.model.device.type)
    _make_folders(options, generate)
    sources, selection = _select(generate, progress)
    _make_responses(options, generate, target, selection, progress)
    if options.only_responses:
        return responses
    train = options.train()
    sequences = read_sequences(responses)
    vocab = most_frequent(sequences, train.draft_vocab_size, target.model.config.vocab_size)
    summary = sequences.summary()
    progress.say(
        f"{len(sequences):,} sequences, {summary['num_response_tokens']:,} response tokens; draft vocabulary covers "
        f"{vocab.coverage:.2%}"
    )
    trainer = make_trainer(train, target.model, sequences, vocab, out)
    if options.resume and (out / _CHECKPOINT).is_file():
        trainer.resume()
        progress.say(f"continuing after step {trainer.step:,} of {trainer.num_steps:,}")
    left_s = options.budget_s - (time.perf_counter() - start) - _EXPORT_S
    trainer.run(max(left_s, 1.0), progress.trained)
    write_head(out, trainer.module, vocab, read_config(target.model_dir)[1], torch.bfloat16)
    record = {
        "command": command,
        "licence": "apache-2.0",
        "target": target.described,
        "head": {
            **{name: getattr(trainer.module.config, name) for name in _HEAD_SIZES},
            "draft_vocab_size": len(vocab.target_id_Vd),
            "aux_layers": target.model.config.aux_layers,
            "coverage": vocab.coverage,
        },
        "data": [source.described() for source in sources],
        "selection": selection.summary(),
        "generate": _without_folders(generate),
        "responses": summary,
        "train": train,
        "run": trainer.summary(),
    }
    write_json(out / TRAINING, record)
    write_model_card(out)
    (out / _CHECKPOINT).unlink(missing_ok=True)
    return out


def continuing(options: TrainHeadOptions, words: Sequence[str]) -> list[str]:
    """The words that continue an interrupted command of these `words`; empty if it left nothing, or a whole head."""
    if _can_resume(options):
        return [*words] if options.resume else [*words, "--resume"]
    has_responses = (options.responses_folder / _DESCRIBED).is_file()
    return [*words] if has_responses and not (options.out / _HEAD).exists() else []


def check_out(options: TrainHeadOptions) -> None:
    """Checks before a model is loaded, which may take minutes. Creates nothing. ValueError for a folder that already
    has a head or cannot be written, and for `resume` where no training has begun."""
    out, responses, has_checkpoint = options.out, options.responses_folder, (options.out / _CHECKPOINT).exists()
    if (out / _HEAD).exists() and not has_checkpoint:
        raise ValueError(f"out: {out} already holds a finished head; give another --out")
    if not options.resume and has_checkpoint:
        raise ValueError(f"out: {out} already holds a checkpoint; give another --out, or --resume")
    if options.resume and not _can_resume(options):
        raise ValueError(f"resume: no training has begun in {out}; give its --out, or drop --resume to start one there")
    check_writable("out", out)
    if not responses.is_dir():  # finished ones may be shared read-only
        check_writable("responses", responses)


def _can_resume(options: TrainHeadOptions) -> bool:
    """Whether OUT holds what `resume` continues: a checkpoint, or responses and no head. Shared ones do not count."""
    out, responses = options.out, options.responses_folder
    is_own = responses.resolve().is_relative_to(out.resolve())
    has_begun = is_own and (responses / _DESCRIBED).is_file() and not (out / _HEAD).exists()
    return has_begun or (out / _CHECKPOINT).is_file()


def make_trainer(
    config: TrainConfig, target: LlamaModel, sequences: Sequences, vocab: DraftVocab, out: Path
) -> Trainer:
    """A trainer at step 0, its weights drawn with the config's seed."""
    intermediate_size = config.intermediate_size or target.config.intermediate_size
    shape = dataclasses.replace(target.config, num_layers=1, intermediate_size=intermediate_size, qk_norm=False)
    generator = torch.Generator().manual_seed(config.seed)
    with torch.no_grad():
        # lm_head's rows, independent of the target's layout: obtained by multiplying with the identity.
        eye = torch.eye(target.config.hidden_size, dtype=target.dtype, device=target.device)
        lm_head_VH = target.logits(eye).t()[vocab.target_id_Vd.to(target.device)]
    module = HeadModule(shape, lm_head_VH, target.norm_H, generator, config.one_pass)
    frozen = FrozenTarget(target, config.max_sequence_tokens + 64)
    source = TargetSource(frozen, lm_head_VH, vocab.draft_id_V, gpu_has_room(target.device))
    batches = Batches(sequences, config.batch_tokens, config.max_sequence_tokens, config.unroll, config.seed)
    return Trainer(config, module, target, source, batches, out / _CHECKPOINT, out / LOG)


def _make_folders(options: TrainHeadOptions, generate: GenerateConfig) -> None:
    """ValueError for a folder that cannot be written, and for responses that were made with other options."""
    responses = options.responses_folder
    with writing("out", options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    with writing("responses", responses):
        responses.mkdir(parents=True, exist_ok=True)
    described = _read_described(responses)
    if not described and shard_paths(responses):
        raise ValueError(f"responses: {responses} holds shards but no {_DESCRIBED}; give another --responses")
    if described and described["fingerprint"] != generate.fingerprint:
        raise ValueError(
            f"responses: {responses} was made with other options ({described['config']}); give the same, or "
            "another --responses"
        )


def _read_described(folder: Path) -> JsonObject:
    path = folder / _DESCRIBED
    return read_json_object(path) if path.is_file() else {}


def _select(config: GenerateConfig, progress: TrainingProgress) -> tuple[list[DataSource], Selection]:
    sources = [find_data(text, config.samples_per_prompt, progress.asset) for text in config.data]
    excluded = excluded_keys(config.exclude, lambda name: find_data(name, 1, progress.asset))
    selection = select(sources, excluded, config.num_prompts, config.max_turns, config.seed)
    if not selection.conversations:
        raise ValueError(f"data: nothing is left of {', '.join(config.data)} without the evaluation texts")
    return sources, selection


def _make_responses(
    options: TrainHeadOptions,
    config: GenerateConfig,
    target: LoadedTarget,
    selection: Selection,
    progress: TrainingProgress,
) -> None:
    folder, model = options.responses_folder, target.model
    if _read_described(folder).get("done") or (options.generate_budget_s == 0 and shard_paths(folder)):
        progress.say(f"using existing responses: {folder}")
        return
    described = {"fingerprint": config.fingerprint, "config": config, "target": target.described}
    write_json(folder / _DESCRIBED, described)
    max_tokens = config.max_prompt_tokens + config.max_response_tokens
    if model.config.max_position < max_tokens:
        raise ValueError(
            f"max_prompt_tokens: {config.max_prompt_tokens} + {config.max_response_tokens} response tokens are more "
            f"than the target's {model.config.max_position} positions"
        )
    engine = throughput_engine(model, BASELINE, {}, max_num_seqs=config.generate_batch, max_model_len=max_tokens + 1)
    num_samples = sum(conversation.num_samples for conversation in selection.conversations)
    generation = Generation(engine, target.tokenizer, target.stop_token_ids, config, folder)
    budget_s = min(options.generate_budget_s, options.budget_s)
    stats = generation.run(selection.conversations, budget_s, lambda s: progress.generated(s, num_samples))
    progress.generated(stats, num_samples)
    write_json(folder / _DESCRIBED, {**described, "done": stats.done, "last_call": stats})
    # The engine's caches and graphs must be freed before training needs the memory.
    del generation, engine
    gc.collect()
    if model.device.type == "cuda":
        torch.cuda.empty_cache()


def _without_folders(config: GenerateConfig) -> JsonObject:
    """The config with file names instead of paths on this machine."""
    names = {key: [Path(text).name for text in getattr(config, key)] for key in ("data", "exclude")}
    return {**dataclasses.asdict(config), **names}
