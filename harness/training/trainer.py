"""The optimisation of one head: targets from the frozen model, unrolled steps, checkpoints, a log by position.

Deterministic by seed on one device and software if `steps` (or `epochs`) end the training. A time budget ends it
earlier and shortens the learning-rate schedule to match.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.rope import rope_table
from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.store.files import write_atomically
from specbench.workloads.json_values import JsonObject

from .batches import Batch, Batches
from .config import TrainConfig
from .head_module import HeadModule, Unroller, compiled_rows, norm_rows
from .soft_loss import row_grads, soft_loss
from .training_targets import TargetSource, TrainingTargets

_FLOOR = 0.01  # final share of the peak learning rate


@dataclass(slots=True)
class LogRow:
    """Means since the previous row. `accuracy`: share of rows whose choice is the target's, by unrolled step."""

    step: int
    num_steps: int
    seconds: float
    num_positions: int  # sequence tokens so far, without padding
    lr: float
    loss: float
    grad_norm: float
    accuracy: tuple[float, ...]

    def flat(self) -> dict[str, float]:
        values = asdict(self)
        accuracy = values.pop("accuracy")
        return values | {f"accuracy_{k + 1}": round(a, 5) for k, a in enumerate(accuracy)}


def learning_rate(config: TrainConfig, step: int, progress: float) -> float:
    """Linear warm-up by steps, cosine over `progress` (0 to 1) down to a hundredth."""
    warm = min(1.0, (step + 1) / (config.warmup_steps + 1))
    wave = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.lr * warm * (_FLOOR + (1 - _FLOOR) * wave)


class Trainer:
    """One training run. `checkpoint` is the file that `resume` reads; it is written periodically and at the end."""

    def __init__(
        self,
        config: TrainConfig,
        module: HeadModule,
        target: LlamaModel,
        source: TargetSource,
        batches: Batches,
        checkpoint: Path,
        log_path: Path,
    ):
        cuda = target.device.type == "cuda"
        self.config = config
        self.module = module.to(target.device)
        self._target = target
        self._source = source
        self._batches = batches
        self._checkpoint = checkpoint
        self._log_path = log_path
        table = rope_table(target.config, config.max_sequence_tokens + config.unroll + 64, target.device)
        self._unroller = Unroller(module.config, target.embed_VH, table, compiled=cuda)
        self._row_grads = compiled_rows(row_grads, 6) if cuda else row_grads
        self._optimizer = torch.optim.AdamW(
            module.parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=cuda
        )
        self._epoch, self._plan = 0, batches.plan(0)
        self.num_steps = config.steps or max(1, math.ceil(len(batches) * config.epochs))
        self.step = 0
        self.num_positions = 0
        self.seconds = 0.0
        self.progress = 0.0
        self.log: list[LogRow] = []
        self._sums: Tensor | None = None
        self._num_summed = 0

    # -- one step ----------------------------------------------------------------------------------------------------

    def _batch(self, step: int) -> tuple[Batch, TrainingTargets]:
        epoch, place = divmod(step, len(self._plan))
        if epoch != self._epoch:
            self._epoch, self._plan = epoch, self._batches.plan(epoch)
        number = self._plan[place]
        batch = self._batches.make(number).to(self._target.device)
        return batch, self._source.targets(number, batch)

    def losses(self, batch: Batch, targets: TrainingTargets) -> tuple[Tensor, Tensor]:
        """The loss to minimise, and fp32 [2 * unroll]: mean cross-entropy and accuracy of each unrolled step."""
        c = self.config
        weights = self.module.cast(self._target.dtype)
        outputs = self._unroller.outputs(weights, targets.features_NF, batch.ids_BT, c.unroll)
        hidden_RH = torch.cat([out.index_select(0, r) for out, r in zip(outputs, batch.loss_row_R, strict=True)])
        counts = [len(r) for r in batch.loss_row_R]
        weight_R = torch.cat(
            [hidden_RH.new_full((n,), c.decay**k / max(n, 1), dtype=torch.float32) for k, n in enumerate(counts)]
        )
        normed_RH = norm_rows(hidden_RH, weights["norm"], self.module.config.rms_norm_eps)
        place_R = torch.cat(batch.loss_target_R)
        loss, ce_R, hit_R = soft_loss(normed_RH, self.module.lm_head, targets, place_R, weight_R, self._row_grads)
        means = [part.float().mean() for x in (ce_R, hit_R) for part in x.split(counts)]
        return loss, torch.stack(means)

    @torch.enable_grad()
    def _gradients(self, batch: Batch, targets: TrainingTargets) -> Tensor:
        """Sets the gradients; fp32 [2 + 2 * unroll]: the loss, their norm, and what `losses` measures."""
        loss, means = self.losses(batch, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip)
        return torch.cat([loss.detach().view(1), norm.detach().view(1), means.nan_to_num(0.0)])

    def _optimise(self, measured: Tensor, num_tokens: int) -> None:
        lr = learning_rate(self.config, self.step, self.progress)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._sums = measured if self._sums is None else self._sums + measured
        self._num_summed += 1
        self.step += 1
        self.num_positions += num_tokens

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self, budget_s: float = math.inf, on_row: Callable[[LogRow], None] | None = None) -> None:
        """Trains to the last step, to the end of the budget or until the user interrupts, whichever comes first, and
        writes a checkpoint."""
        before, base, saved = self.seconds, self.progress, self.seconds
        began = time.perf_counter() - before
        try:
            while self.step < self.num_steps:
                spent = self.seconds - before
                self.progress = max(self.step / self.num_steps, base + (1 - base) * spent / budget_s)
                if spent >= budget_s:
                    break
                batch, targets = self._batch(self.step)
                measured = self._gradients(batch, targets)  # compiles for minutes at the first step on a GPU
                with deferred_interrupt():  # half a step would be part of the checkpoint
                    self._optimise(measured, batch.num_tokens)
                    self.seconds = time.perf_counter() - began
                    if self.step % self.config.log_every == 0 or self.step == self.num_steps:
                        self._write_row(on_row)
                if self.seconds - saved > self.config.checkpoint_every_s:
                    saved = self.seconds
                    self.save()
            if self._num_summed:
                with deferred_interrupt():
                    self._write_row(on_row)
            self.seconds = time.perf_counter() - began
            self.save()
        except KeyboardInterrupt:
            self.save()
            raise

    def _write_row(self, on_row: Callable[[LogRow], None] | None) -> None:
        assert self._sums is not None
        loss, norm, *means = (self._sums / self._num_summed).tolist()
        if not math.isfinite(loss):
            raise RuntimeError(f"training: the loss is {loss} at step {self.step}; lower --lr and start again")
        self._sums, self._num_summed = None, 0
        lr = learning_rate(self.config, self.step - 1, self.progress)
        accuracy = tuple(means[self.config.unroll :])
        row = LogRow(self.step, self.num_steps, self.seconds, self.num_positions, lr, loss, norm, accuracy)
        self.log.append(row)
        pd.DataFrame([row.flat() for row in self.log]).to_csv(self._log_path, index=False)
        if on_row:
            on_row(row)

    def summary(self) -> JsonObject:
        """The run's entry in training.json."""
        device = self._target.device
        return {
            "steps": self.step,
            "planned_steps": self.num_steps,
            "num_positions": self.num_positions,
            "seconds": round(self.seconds, 1),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU",
            "torch": torch.__version__,
        }

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        state = dict(
            config=asdict(self.config),
            module=self.module.state_dict(),
            optimizer=self._optimizer.state_dict(),
            counts=(self.step, self.num_positions, self.seconds, self.progress, self._num_summed),
            sums=self._sums,
            log=[astuple(row) for row in self.log],
        )
        write_atomically(self._checkpoint, lambda file: torch.save(state, file))

    def resume(self) -> None:
        """Continues from `checkpoint`. Raises ValueError if it belongs to other options."""
        state = torch.load(self._checkpoint, map_location=self._target.device, weights_only=True)
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
