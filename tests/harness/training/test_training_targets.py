"""The targets of training are the target's distributions, and keeping its states changes nothing but the time."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from toy.checkpoints import llama_config, load_written, write_llama

from specbench.harness.training.batches import Batches
from specbench.harness.training.config import TrainConfig
from specbench.harness.training.draft_vocab import DraftVocab
from specbench.harness.training.frozen_target import FrozenTarget
from specbench.harness.training.pipeline import make_trainer
from specbench.harness.training.training_targets import TargetSource

from .made import made_up

VOCAB = DraftVocab(torch.arange(0, 128, 2), 128, 1.0)


class CountingTarget(FrozenTarget):
    """Counts the forward passes."""

    num_passes = 0

    def states(self, ids_BT):
        self.num_passes += 1
        return super().states(ids_BT)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    write_llama(folder, llama_config())
    return load_written(folder)


@pytest.fixture(scope="module")
def sequences(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("responses"))


@pytest.fixture
def batches(sequences):
    return Batches(sequences, 400, 64, 3, seed=1)


def head_rows(target):
    """The target's output rows of the draft vocabulary."""
    eye = torch.eye(target.config.hidden_size)
    return target.logits(eye).t()[VOCAB.target_id_Vd].contiguous()


def source(target, has_room) -> tuple[CountingTarget, TargetSource]:
    frozen = CountingTarget(target, 128)
    return frozen, TargetSource(frozen, head_rows(target), VOCAB.draft_id_V, has_room)


def test_they_are_the_targets_distribution_over_the_draft_vocabulary(target, batches):
    frozen, made = source(target, lambda: False)
    batch = batches.make(2)
    targets = made.targets(2, batch)
    hidden_NH, features_NF = frozen.states(batch.ids_BT)
    logits = target.logits(hidden_NH[batch.target_row_Q])
    assert torch.equal(targets.features_NF, features_NF)
    torch.testing.assert_close(targets.logits_QV, logits[:, ::2])
    torch.testing.assert_close(targets.lse_Q, logits[:, ::2].logsumexp(-1))
    choice = logits.argmax(-1)
    assert targets.best_Q.tolist() == [int(c) // 2 if c % 2 == 0 else -1 for c in choice]


def test_a_batch_is_run_once_while_there_is_room(target, batches):
    room = iter([True, True, False, *[False] * 10])
    frozen, made = source(target, lambda: next(room))
    first = [made.targets(n, batches.make(n)) for n in range(4)]
    assert frozen.num_passes == 4
    again = [made.targets(n, batches.make(n)) for n in range(4)]
    assert frozen.num_passes == 6, "batches 2 and 3 were not kept"
    for a, b in zip(first, again, strict=True):
        for field in dataclasses.fields(a):
            assert torch.equal(getattr(a, field.name), getattr(b, field.name))


def test_kept_states_train_the_same_head(target, sequences, tmp_path, monkeypatch):
    config = TrainConfig(
        draft_vocab_size=64, unroll=3, warmup_steps=2, epochs=2.0, batch_tokens=400, max_sequence_tokens=64
    )
    heads = []
    for name, kept in (("kept", True), ("not", False)):
        monkeypatch.setattr("specbench.harness.training.pipeline.gpu_has_room", lambda device, kept=kept: lambda: kept)
        (tmp_path / name).mkdir()
        trainer = make_trainer(config, target, sequences, VOCAB, tmp_path / name)
        trainer.run()
        assert trainer.step == 2 * len(Batches(sequences, 400, 64, 3, seed=0))
        heads.append(trainer.module.state_dict())
    for name, weight in heads[0].items():
        assert torch.equal(weight, heads[1][name]), name
