"""Training on a toy target: it learns, the same seed gives the same head, an interrupted run ends in the same head."""

from __future__ import annotations

import csv
import dataclasses
import math
import signal

import pytest
import torch
from toy.clock import Clock
from toy.engines import toy_target
from toy.interrupts import terminal_signals

from specbench.harness.training import trainer as training
from specbench.harness.training.config import TrainConfig
from specbench.harness.training.draft_vocab import most_frequent
from specbench.harness.training.pipeline import make_trainer
from specbench.harness.training.trainer import Trainer, learning_rate

from .made import made_up

CONFIG = TrainConfig(
    draft_vocab_size=64,
    unroll=3,
    lr=3e-3,
    warmup_steps=3,
    steps=24,
    batch_tokens=512,
    max_sequence_tokens=64,
    log_every=8,
    seed=5,
)


@pytest.fixture(scope="module")
def sequences(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("responses"))


def trainer(sequences, out, config: TrainConfig = CONFIG) -> Trainer:
    target = toy_target()
    vocab = most_frequent(sequences, config.draft_vocab_size, target.config.vocab_size)
    out.mkdir(exist_ok=True)
    return make_trainer(config, target, sequences, vocab, out)


def weights(t: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in t.module.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, b[name]) for name, tensor in a.items())


@pytest.mark.parametrize("kind", [None, "parallel-eagle"])
def test_it_learns_and_logs_by_position(sequences, tmp_path, kind):
    """A row is one epoch, so that rows are means over the same batches."""
    t = trainer(sequences, tmp_path, dataclasses.replace(CONFIG, kind=kind, log_every=6))
    t.run()
    first, last = t.log[0], t.log[-1]
    assert last.step == 24 and last.loss < first.loss - 0.01
    assert all(b > 2.5 * a for a, b in zip(first.accuracy, last.accuracy, strict=True)) and len(last.accuracy) == 3
    rows = list(csv.DictReader((tmp_path / "training_log.csv").open()))
    assert [int(r["step"]) for r in rows] == [6, 12, 18, 24]
    assert float(rows[-1]["accuracy_3"]) == pytest.approx(last.accuracy[2], abs=1e-4)
    assert t.num_positions > 24 * 200


def test_the_seed_decides_the_head(sequences, tmp_path):
    heads = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        t = trainer(sequences, tmp_path / name, dataclasses.replace(CONFIG, seed=seed, steps=4))
        t.run()
        heads.append(weights(t))
    assert same(heads[0], heads[1]) and not same(heads[0], heads[2])


def test_an_interrupted_run_ends_in_the_same_head(sequences, tmp_path):
    """Interrupted before step 12 changes anything, in what a GPU compiles for minutes."""
    whole = trainer(sequences, tmp_path / "a")
    whole.run()
    t = trainer(sequences, tmp_path / "b")
    losses = t.losses

    def losses_with_signal(batch, targets):
        if t.step == 11:
            signal.raise_signal(signal.SIGINT)
        return losses(batch, targets)

    t.losses = losses_with_signal  # type: ignore[method-assign]
    with terminal_signals(), pytest.raises(KeyboardInterrupt):
        t.run()
    again = trainer(sequences, tmp_path / "b")
    again.resume()
    assert again.step == 11 and again.seconds == t.seconds > 0
    again.run()
    assert same(weights(whole), weights(again))
    assert [r.accuracy for r in again.log] == [r.accuracy for r in whole.log]


def test_an_interrupt_in_the_last_row_or_checkpoint_loses_no_step(sequences, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "time", Clock(tick_ns=100_000_000))
    config = dataclasses.replace(CONFIG, steps=100_000, log_every=100_000)
    t = trainer(sequences, tmp_path / "a", config)
    with terminal_signals(), pytest.raises(KeyboardInterrupt):
        t.run(budget_s=0.5, on_row=lambda row: signal.raise_signal(signal.SIGINT))
    u, write = trainer(sequences, tmp_path / "b", config), training.write_atomically

    def write_after_signal(path, save):
        monkeypatch.setattr(training, "write_atomically", write)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(training, "write_atomically", write_after_signal)
    with terminal_signals(), pytest.raises(KeyboardInterrupt):
        u.run(budget_s=0.5)
    for interrupted in (t, u):
        again = trainer(sequences, interrupted._checkpoint.parent, config)
        again.resume()
        assert again.step == interrupted.step > 3 and [row.step for row in again.log] == [again.step]


def test_a_checkpoint_of_other_options_is_refused(sequences, tmp_path):
    trainer(sequences, tmp_path).save()
    other = trainer(sequences, tmp_path, dataclasses.replace(CONFIG, lr=1e-4))
    with pytest.raises(ValueError, match="resume: .*checkpoint.pt was written with another lr"):
        other.resume()


def test_a_budget_ends_the_training_in_time(sequences, tmp_path, monkeypatch):
    """A step reads the clock once: of 100 ms each reading, some thirty steps fit."""
    monkeypatch.setattr(training, "time", Clock(tick_ns=100_000_000))
    t = trainer(sequences, tmp_path, dataclasses.replace(CONFIG, steps=100_000))
    t.run(budget_s=3)
    assert 29 <= t.step <= 31 and 3 <= t.seconds < 3.5
    assert t.log[-1].lr < 0.3 * CONFIG.lr, "the schedule follows the clock"
    assert (tmp_path / "checkpoint.pt").is_file()


def test_learning_rate_rises_then_falls_to_a_hundredth():
    rates = [learning_rate(CONFIG, step, step / 24) for step in range(25)]
    assert rates[0] < rates[2] < rates[3] and max(rates) <= CONFIG.lr
    assert rates[-1] == pytest.approx(CONFIG.lr / 100) and all(
        a > b for a, b in zip(rates[4:], rates[5:], strict=False)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(lr=0.0), "lr: 0.0 is not allowed; allowed: above 0"),
        (dict(lr=math.nan), "lr: nan"),
        (dict(unroll=0), "unroll: 0 is not allowed; allowed: 1 to 64"),
        (
            dict(batch_tokens=100, max_sequence_tokens=200),
            r"batch_tokens: 100 is not allowed; allowed: max_sequence_tokens \(200\) or more",
        ),
        (dict(steps=-1), "steps: -1"),
        (dict(kind="ngram"), "kind: 'ngram' has no head; allowed: eagle, .*parallel-eagle"),
        (dict(kind="parallel"), "'parallel' is not known.*allowed: "),
    ],
)
def test_bad_options_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
