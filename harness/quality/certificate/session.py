"""Certifies the arms of our own engine: their outputs, judged at every temperature, stored arm by arm.

One engine at a time: an arm generates everything that is needed, then its engine and graphs are released before the
next one is built. Nothing is timed here, so graphs are captured only when a step first needs their size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from specbench.harness.engines.base import Deployment
from specbench.harness.engines.load import PromptRequest
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.quality.certificate.certificate import CertificateFile, CertifySettings
from specbench.harness.quality.certificate.certify import Generated, Judge, generate
from specbench.harness.quality.certificate.distribution import DistributionJudge, DistributionTest
from specbench.harness.quality.certificate.parts import Parts
from specbench.harness.quality.certificate.scores import fp32_twin, target_of
from specbench.harness.quality.certificate.tolerance import measure_tolerance
from specbench.harness.registry import BASELINE, strategy_class
from specbench.harness.run.estimate import token_estimate
from specbench.harness.run.prepare import PreparedRun
from specbench.harness.run.progress import Progress
from specbench.harness.spec.sampling import SamplingParams
from specbench.workloads.guarded import first_line

_TEXTS, _SEEDS = "texts", "seeds"  # each takes about as long as others of its kind
_SEED_PROMPT_TOKENS = 32  # the end of the shortest prompt: the first words of an answer are the least certain
_SEED_OUTPUT_TOKENS = 4  # the first from the prompt, the others from rounds with drafts


@dataclass(frozen=True, slots=True)
class _JudgeAt:
    """The judges of the arms at one temperature. `seeds`: None if no distribution is tested."""

    texts: Judge
    baseline: Generated
    seeds: DistributionJudge | None


class Certifier:
    """A certificate in progress. `labels`: of the run's arms that our own engine serves; `references`: by label, the
    arm whose rounds an arm must repeat."""

    def __init__(
        self,
        run: PreparedRun,
        labels: Sequence[str],
        references: Mapping[str, str],
        settings: CertifySettings,
        file: CertificateFile,
        progress: Progress,
    ):
        self._run, self._settings, self._file, self._progress = run, settings, file, progress
        self._references, self._parts = references, Parts((), progress)
        own = [arm.config for arm in run.arms if arm.config.label in labels]
        self._labels = [arm.label for arm in own]
        self._drawing = {arm.label for arm in own if strategy_class(arm.strategy).of(arm.options).samples_drafts}
        self._changing = {arm.config.label for arm in run.arms if arm.setup().has_auto_k}
        baseline = next(arm for arm in own if arm.strategy == BASELINE)
        self._baseline = baseline.label
        self._target: LlamaModel = target_of(run.engine.of(baseline))
        self._exact: LlamaModel = fp32_twin(self._target)

    def _missing(self) -> dict[str, list[float]]:
        """Temperatures by label at which an arm is not judged yet."""
        return {
            label: [t for t in self._settings.temperatures if not self._file.has(label, t)] for label in self._labels
        }

    @torch.inference_mode()
    def certify(self, parts: Parts) -> None:
        """Judges every arm not judged yet; the failure of an arm to run is stored, and the others continue."""
        missing, self._parts = self._missing(), parts
        open_temperatures = {t for temperatures in missing.values() for t in temperatures}
        judges = {t: self._judge(t) for t in self._settings.temperatures if t in open_temperatures}
        for label in self._in_order():
            for temperature in missing[label]:
                self._certify_arm(label, temperature, judges[temperature])
            self._run.deployments.drop(label)  # its graphs, and the memory that they hold

    def parts_to_come(self) -> list[str]:
        """What must still be generated, by kind and in order; announced before the first."""
        missing = self._missing()
        needed: dict[tuple[str, float], None] = dict.fromkeys(
            (self._baseline, t)
            for t in self._settings.temperatures
            if any(t in temperatures for temperatures in missing.values())
        )
        spread = []
        for label in self._in_order():
            for temperature in missing[label]:
                needed |= dict.fromkeys((arm, temperature) for arm in (label, self._references.get(label, label)))
                spread += [label] * (temperature > 0 and self._settings.num_seeds > 0)
        texts = [label for label, temperature in needed if self._file.outputs(label, temperature) is None]
        if texts or spread:
            seeds = f", {len(spread)} times {self._settings.num_seeds} seeds" if spread else ""
            self._progress.say(f"to generate: {len(texts)} times {len(self._run.load)} outputs{seeds}")
            most = sum(prompt.max_tokens for prompt in self._run.workload.prompts)
            tokens = {label: most * texts.count(label) for label in (*texts, *spread)}
            for label in spread:
                tokens[label] += self._settings.num_seeds * _SEED_OUTPUT_TOKENS
            self._progress.say(token_estimate(self._run, self._file.directory, tokens))
        return [_TEXTS] * len(texts) + [_SEEDS] * len(spread)

    def _in_order(self) -> list[str]:
        """First the arms that others are compared with: their outputs are stored when they are needed."""
        first = [self._baseline, *self._references.values()]
        return list(dict.fromkeys([*(label for label in self._labels if label in first), *self._labels]))

    def _judge(self, temperature: float) -> _JudgeAt:
        requests = self._requests(temperature)
        baseline = self._generated(self._baseline, temperature)  # without it nothing can be judged: its errors end all
        tolerance = self._file.tolerance(temperature)
        if tolerance is None:
            texts = [(r.prompt_ids, baseline.outputs[r.id]) for r in requests]
            tolerance = measure_tolerance(self._target, self._exact, texts)
            self._file.note_tolerance(temperature, tolerance)
        judge = Judge(self._target, self._exact, tolerance, requests, self._changing)
        return _JudgeAt(judge, baseline, self._seed_judge(temperature))

    def _certify_arm(self, label: str, temperature: float, at: _JudgeAt) -> None:
        try:
            got, plain = self._generated(label, temperature), None
            if label in self._references:
                plain = (self._references[label], self._generated(self._references[label], temperature))
            spread = self._spread(label, temperature, at.seeds) if at.seeds else None
            is_drawn = temperature > 0 and label in self._drawing
            judge = at.texts.of_drawn_drafts if is_drawn else at.texts.certificate
            certificate = judge(label, got, at.baseline, plain, spread)
        except Exception as error:  # stored with the arm, shown in its row
            self._run.deployments.drop(label)
            self._file.add_failure(label, temperature, f"{type(error).__name__}: {first_line(error)}")
            self._progress.say(f"{label}: failed: {first_line(error)}")
            return
        self._file.add(certificate)
        verdict = "passed" if certificate.ok else "; ".join(certificate.problems)
        self._progress.say(f"{label}, temperature {temperature:g}: {verdict}")

    def _requests(self, temperature: float) -> list[PromptRequest]:
        load = self._run.load.plain_at(temperature)
        return [load.request(index) for index in range(len(load.prompts))]

    def _generated(self, label: str, temperature: float) -> Generated:
        found = self._file.outputs(label, temperature)
        if found is None:
            requests = self._requests(temperature)
            place = self._parts.begin(label, _TEXTS)
            self._progress.start_block(f"{label}, temperature {temperature:g}{place}", len(requests))
            found = generate(self._deployment(label), requests, self._progress)
            self._file.keep_outputs(label, temperature, found)
        return found

    def _deployment(self, label: str) -> Deployment:
        return self._run.deployments.of(next(arm for arm in self._run.arms if arm.config.label == label))

    def _seed_judge(self, temperature: float) -> DistributionJudge | None:
        if temperature == 0 or self._settings.num_seeds == 0:
            return None
        return DistributionJudge(self._exact, self._seed_prompt(), temperature)

    def _seed_prompt(self) -> tuple[int, ...]:
        shortest = min((p.token_ids for p in self._run.workload.prompts), key=len)
        most = self._run.config.workload.max_model_len - _SEED_OUTPUT_TOKENS
        return tuple(shortest[-min(_SEED_PROMPT_TOKENS, most) :])

    def _spread(self, label: str, temperature: float, judge: DistributionJudge) -> DistributionTest:
        """The arm's tokens over many seeds, without stop ids so that all have the same length."""
        prompt, num = self._seed_prompt(), self._settings.num_seeds
        first_seed = (self._run.config.seed + 1) * 500_009 & 0x3FFF_FFFF  # not those of the prompts
        requests = [
            PromptRequest(
                id=i,
                key=f"seed-{i}",
                prompt_ids=prompt,
                text="",
                sampling=SamplingParams(temperature=temperature, max_tokens=_SEED_OUTPUT_TOKENS, seed=first_seed + i),
            )
            for i in range(num)
        ]
        place = self._parts.begin(label, _SEEDS)
        self._progress.start_block(f"{label}, {num} seeds at temperature {temperature:g}{place}", num)
        return judge.test(generate(self._deployment(label), requests, self._progress).outputs)
