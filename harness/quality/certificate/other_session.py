"""Certifies the arms of another engine, each in its own process: first all arms generate, then their baseline scores
the outputs, deployed again if it has ended."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.engines.base import Deployment
from specbench.harness.quality.certificate.answers import Answers, ask
from specbench.harness.quality.certificate.certificate import CertificateFile
from specbench.harness.quality.certificate.groups import Group
from specbench.harness.quality.certificate.own_scores import STATED_TOLERANCE, EqualityJudge, ScoreJudge
from specbench.harness.quality.certificate.parts import Parts
from specbench.harness.run.prepare import PreparedRun
from specbench.harness.run.progress import Progress
from specbench.harness.store.arm_record import Fact
from specbench.workloads.guarded import first_line

GREEDY = 0.0
_OUTPUTS, _SCORES = "outputs", "scores"  # each takes about as long as others of its kind


class OtherCertifier:
    """`group`: arms of the run."""

    def __init__(self, run: PreparedRun, group: Group, file: CertificateFile, progress: Progress):
        self._run, self._group, self._file, self._progress = run, group, file, progress
        self._parts = Parts((), progress)
        greedy = run.load.plain_at(GREEDY)
        self._requests = [greedy.request(index) for index in range(len(greedy))]
        self._arms = {arm.config.label: arm for arm in run.arms if arm.config.label in group.labels}

    def _missing(self) -> list[str]:
        """Labels of the arms that are not judged yet."""
        return [label for label in self._group.labels if not self._file.has(label, GREEDY)]

    def parts_to_come(self) -> list[str]:
        """What must still be generated and scored, by kind."""
        missing = self._missing()
        generating = dict.fromkeys([self._group.baseline, *missing] if missing else ())
        return [self._kind(_OUTPUTS)] * len(generating) + [self._kind(_SCORES)] * len(missing)

    def certify(self, parts: Parts) -> None:
        """Judges every arm not judged yet; the failure of an arm to run is stored, and the others continue."""
        missing, self._parts = self._missing(), parts
        if not missing:
            return
        answers: dict[str, Answers] = {}
        for label in dict.fromkeys([self._group.baseline, *missing]):
            try:
                answers[label] = self._answers(label)
            except Exception as error:  # stored with the arm, shown in its row
                self._failed(label, error)
                if label == self._group.baseline:
                    for other in missing:
                        if other != label:
                            self._failed(other, RuntimeError(f"its baseline {label} failed: {first_line(error)}"))
                    return
        try:
            judge = self._judge(answers[self._group.baseline])
        except Exception as error:
            for label in missing:
                self._failed(label, error)
            return
        for label in [label for label in missing if label in answers]:
            self._certify(label, answers[label], judge)
        self._run.deployments.drop(self._group.baseline)

    def _answers(self, label: str) -> Answers:
        place = self._parts.begin(label, self._kind(_OUTPUTS))
        self._progress.start_block(f"{label}{place}", len(self._requests))
        answers = ask(self._deployment(label), self._requests, self._progress)
        self._file.keep_outputs(label, GREEDY, answers)
        if label != self._group.baseline:
            self._run.deployments.drop(label)
        return answers

    def _judge(self, baseline: Answers) -> ScoreJudge | EqualityJudge:
        deployment = self._deployment(self._group.baseline)
        unknown = deployment.capabilities.unknown
        dtype = self._dtype()
        reason = unknown.get(Fact.SCORES, "")
        if baseline.outputs is None:
            reason = reason or unknown.get(Fact.TOKEN_IDS, "no token ids were reported")
        if not reason and dtype not in STATED_TOLERANCE:
            reason = f"no tolerance is known for the dtype {dtype or '(unknown)'}"
        if reason:
            self._progress.say(f"{self._group.engine}: by equality alone: {reason}")
            return EqualityJudge(reason, baseline)

        def regrets(ids: Sequence[int], num_scored: int) -> tuple[float, ...]:
            scored = self._deployment(self._group.baseline).score(ids, num_scored).regrets
            if scored is None or len(scored) != num_scored:
                raise RuntimeError(f"{self._group.engine} reported no scores for {num_scored} tokens")
            return scored

        return ScoreJudge(dtype, regrets, self._requests, baseline, self._run.model.vocab_size)

    def _certify(self, label: str, answers: Answers, judge: ScoreJudge | EqualityJudge) -> None:
        self._progress.say(f"{label}: judging{self._parts.begin(label, self._kind(_SCORES))}")
        try:
            certificate = judge.certificate(label, answers, is_baseline=label == self._group.baseline)
        except Exception as error:  # stored with the arm, shown in its row
            self._failed(label, error)
            return
        self._file.add(certificate)
        self._progress.say(f"{label}: {'passed' if certificate.ok else '; '.join(certificate.problems)}")

    def _kind(self, kind: str) -> str:
        """The kind of a part by engine, since engines are not equally fast."""
        return f"{self._group.engine} {kind}"

    def _dtype(self) -> str:
        """Empty for a server that was not started by us, whose dtype is its own."""
        is_ours = "url" not in self._arms[self._group.baseline].config.engine
        return (self._run.model.described.dtype or "") if is_ours else ""

    def _deployment(self, label: str) -> Deployment:
        return self._run.deployments.of(self._arms[label])

    def _failed(self, label: str, error: Exception) -> None:
        self._run.deployments.drop(label)
        self._file.add_failure(label, GREEDY, f"{type(error).__name__}: {first_line(error)}")
        self._progress.say(f"{label}: failed: {first_line(error)}")
