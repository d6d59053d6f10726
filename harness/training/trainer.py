"""The optimisation of one head: lessons from the frozen target, unrolled steps, checkpoints, a log by position.

Deterministic by seed on one device and software as long as `steps` (or `epochs`) end the training; a time budget ends
it earlier, with the learning rate's schedule pulled in to match.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from specbench.harness.engines.native.models.rope import rope_table
from specbench.workloads.assets.cache import atomic_file

from .batches import Batch, Batches, num_steps
from .config import TrainConfig
from .head_module import HeadModule, Unroller, norm_rows
from .soft_loss import SoftLoss
from .target_pass import Teacher

_FLOOR = 0.01  # of the peak learning rate, at the end


@dataclass(slots=True)
class LogRow:
    """Means since the row before. `accuracy`: share of rows whose choice is the target's, by unrolled step."""

    step: int
    num_steps: int
    seconds: float
    num_positions: int  # sequence tokens so far, without padding
    lr: float
    loss: float
    grad_norm: float
    accuracy: tuple[float, ...]

    def flat(self) -> dict[str, float]:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "accuracy"}
        return values | {f"accuracy_{k + 1}": round(a, 5) for k, a in enumerate(self.accuracy)}


def learning_rate(config: TrainConfig, step: int, progress: float) -> float:
    """Linear warm-up by steps, cosine over `progress` (0 to 1) down to a hundredth."""
    warm = min(1.0, (step + 1) / (config.warmup_steps + 1))
    wave = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.lr * warm * (_FLOOR + (1 - _FLOOR) * wave)


class Trainer:
    """One training run. `checkpoint` is the file that `resume` reads; it is written every so often and at the end."""

    def __init__(
        self,
        config: TrainConfig,
        module: HeadModule,
        teacher: Teacher,
        batches: Batches,
        checkpoint: Path,
        log_path: Path,
    ):
        target = teacher.target
        cuda = target.device.type == "cuda"
        self.config = config
        self.module = module.to(target.device)
        self._teacher = teacher
        self._batches = batches
        self._checkpoint = checkpoint
        self._log_path = log_path
        table = rope_table(target.config, config.max_sequence_tokens + config.unroll + 64, target.device)
        self._unroller = Unroller(module.shape, target.embed_VH, table, compiled=cuda)
        self._loss = SoftLoss.make(compiled=cuda)
        self._optimizer = torch.optim.AdamW(
            module.parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=cuda
        )
        self._plan_epoch = -1
        self._plan: list = []
        self.num_steps = num_steps(len(batches.plan(0)), config.epochs, config.steps)
        self.step = 0
        self.num_positions = 0
        self.seconds = 0.0
        self.progress = 0.0
        self.log: list[LogRow] = []
        self._sums: Tensor | None = None
        self._num_summed = 0

    # -- one step ----------------------------------------------------------------------------------------------------

    def _batch(self, step: int) -> Batch:
        epoch, place = self._epoch_of(step)
        return self._batches.make(self._plan[place]).to(self._teacher.target.device)

    def _epoch_of(self, step: int) -> tuple[int, int]:
        """Every epoch has as many batches as the first: lengths, and so the cuts, are the same."""
        per_epoch = len(self._batches.plan(0)) if not self._plan else len(self._plan)
        epoch, place = divmod(step, per_epoch)
        if epoch != self._plan_epoch:
            self._plan, self._plan_epoch = self._batches.plan(epoch), epoch
        return epoch, place

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss to minimise, and fp32 [2 * unroll]: mean cross-entropy and accuracy of each unrolled step."""
        c, dtype = self.config, self._teacher.target.dtype
        lesson = self._teacher.lesson(batch.ids_BT, batch.target_row_Q)
        weights = self.module.cast(dtype)
        outputs = self._unroller.outputs(weights, lesson.features_NF, batch.ids_BT, c.unroll)
        hidden_RH = torch.cat([out.index_select(0, r) for out, r in zip(outputs, batch.loss_row_R, strict=True)])
        counts = [len(r) for r in batch.loss_row_R]
        weight_R = torch.cat(
            [hidden_RH.new_full((n,), c.decay**k / max(n, 1), dtype=torch.float32) for k, n in enumerate(counts)]
        )
        normed_RH = norm_rows(hidden_RH, weights.norm, self.module.shape.rms_norm_eps)
        place_R = torch.cat(batch.loss_target_R)
        loss, ce_R, hit_R = self._loss(normed_RH, self.module.lm_head, lesson, place_R, weight_R)
        means = [part.float().mean() for x in (ce_R, hit_R) for part in x.split(counts)]
        return loss, torch.stack(means)

    @torch.enable_grad()
    def _optimise(self, batch: Batch) -> None:
        lr = learning_rate(self.config, self.step, self.progress)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        loss, means = self.losses(batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        summed = torch.cat([loss.detach().view(1), norm.detach().view(1), means.nan_to_num(0.0)])
        self._sums = summed if self._sums is None else self._sums + summed
        self._num_summed += 1
        self.step += 1
        self.num_positions += batch.num_tokens

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self, budget_s: float = math.inf, tell: Callable[[LogRow], None] | None = None) -> None:
        """Trains to the last step or to the end of the budget, whichever comes first, and writes a checkpoint."""
        start, before, base = time.perf_counter(), self.seconds, self.progress
        saved = start
        while self.step < self.num_steps:
            elapsed = time.perf_counter() - start
            self.progress = max(self.step / self.num_steps, base + (1 - base) * elapsed / budget_s)
            if elapsed >= budget_s:
                break
            self._optimise(self._batch(self.step))
            if self.step % self.config.log_every == 0 or self.step == self.num_steps:
                self.seconds = before + time.perf_counter() - start
                self._write_row(tell)
            if time.perf_counter() - saved > self.config.checkpoint_every_s:
                self.save()
                saved = time.perf_counter()
        if self._num_summed:
            self._write_row(tell)
        self.seconds = before + time.perf_counter() - start
        self.save()

    def _write_row(self, tell: Callable[[LogRow], None] | None) -> None:
        assert self._sums is not None
        loss, norm, *means = (self._sums / self._num_summed).tolist()
        if not math.isfinite(loss):
            raise RuntimeError(f"training: the loss is {loss} at step {self.step}; lower --lr and start again")
        self._sums, self._num_summed = None, 0
        lr = learning_rate(self.config, self.step - 1, self.progress)
        accuracy = tuple(means[self.config.unroll :])
        row = LogRow(self.step, self.num_steps, self.seconds, self.num_positions, lr, loss, norm, accuracy)
        self.log.append(row)
        self._write_log()
        if tell:
            tell(row)

    def _write_log(self) -> None:
        with self._log_path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.log[0].flat()))
            writer.writeheader()
            writer.writerows(row.flat() for row in self.log)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        state = dict(
            config=asdict(self.config),
            module=self.module.state_dict(),
            optimizer=self._optimizer.state_dict(),
            counts=(self.step, self.num_positions, self.seconds, self.progress, self._num_summed),
            sums=self._sums,
            log=[(*[getattr(r, f.name) for f in fields(r)],) for r in self.log],
        )
        with atomic_file(self._checkpoint) as file:
            torch.save(state, file)

    def resume(self) -> None:
        """Goes on where `checkpoint` was written. Raises ValueError if it belongs to other options."""
        state = torch.load(self._checkpoint, map_location=self._teacher.target.device, weights_only=True)
        if state["config"] != asdict(self.config):
            changed = [k for k, v in asdict(self.config).items() if state["config"].get(k) != v]
            raise ValueError(
                f"resume: {self._checkpoint} was written with another {', '.join(changed)}; give the same options, or "
                "start in another --out"
            )
        self.module.load_state_dict(state["module"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step, self.num_positions, self.seconds, self.progress, self._num_summed = state["counts"]
        self._sums = state["sums"]
        self.log = [LogRow(*values) for values in state["log"]]
