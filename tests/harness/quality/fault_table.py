"""Which check catches which planted fault, and whether exact match or accuracy alone would have: run, then tabled.

    PYTHONPATH=.ns:tests python tests/harness/quality/fault_table.py

writes benchmarks/results/planted-faults.md. Everything on a CPU in about a minute.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from harness.quality import fault_rig as rig
from harness.quality import faults
from harness.quality.fault_rig import CHAIN, TEMPERATURE, TREE
from toy.engines import asked, make_engine, named_strategy, pad_rounds
from toy.few_words import FewWords
from toy.plans import CPU

from specbench.harness.engines.native.core import round as engine_round
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.models.loader import load_target
from specbench.harness.metrics.accuracy import mcnemar
from specbench.harness.quality.certificate.certify import Certificate, Generated, Judge
from specbench.harness.quality.certificate.scores import fp32_twin
from specbench.harness.quality.certificate.tolerance import measure_tolerance
from specbench.kernels import compiled

FILE = Path(__file__).parents[3] / "benchmarks" / "results" / "planted-faults.md"
CHECKS = ("length", "divergence", "regret", "excess", "acceptance", "distribution")
NUM_ITEMS = 24
NUM_PADDED = 4  # requests of a padded round, one of them padding
LENIENT_LOGITS = 0.8  # below the tolerance of this target in bf16
_HEADERS = ("fault", "run", "exact match", "accuracy: won/lost (p)", *CHECKS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """`num_won`, `num_lost`: items of NUM_ITEMS answered right by the arm alone, by no-spec alone."""

    fault: str
    run: str
    certificate: Certificate
    num_won: int
    num_lost: int

    @property
    def caught_by(self) -> set[str]:
        return rig.failed_checks(self.certificate)

    @property
    def shows_in_exact_match(self) -> bool:
        return self.certificate.num_exact < self.certificate.num_prompts

    @property
    def accuracy_p(self) -> float:
        return mcnemar(self.num_won, self.num_lost, NUM_ITEMS).p

    def cells(self) -> tuple[str, ...]:
        c = self.certificate
        exact = f"{c.num_exact}/{c.num_prompts}: {_verdict(self.shows_in_exact_match)}"
        accuracy = f"{self.num_won}/{self.num_lost} ({self.accuracy_p:.2g}): {_verdict(self.accuracy_p < 0.05)}"
        return (self.fault, self.run, exact, accuracy, *("x" if check in self.caught_by else "" for check in CHECKS))


def _verdict(is_caught: bool) -> str:
    return "caught" if is_caught else "missed"


Make = Callable[[FewWords], Engine]
Reference = tuple[str, Generated]


def _faulty(fault: Callable[[Engine], None], strategy: rig.Strategy = CHAIN, is_padded: bool = False) -> Make:
    def make(few: FewWords) -> Engine:
        engine = rig.spec_engine(few, strategy, max_num_seqs=NUM_PADDED - 1 if is_padded else NUM_PADDED)
        if is_padded:
            pad_rounds(engine, [NUM_PADDED])
        fault(engine)
        return engine

    return make


def _answers(outputs: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """An item's answer is the word said most often: like a final answer, it survives other words on the way."""
    return {number: Counter(ids).most_common(1)[0][0] for number, ids in outputs.items()}


def _won_lost(right: Mapping[int, int], arm: Mapping[int, int], base: Mapping[int, int]) -> tuple[int, int]:
    won = sum(arm[i] == right[i] != base[i] for i in right)
    lost = sum(base[i] == right[i] != arm[i] for i in right)
    return won, lost


def _answered(engine: Engine) -> dict[int, int]:
    """Its greedy answers to the items."""
    return _answers(rig.said(engine, rig.requests_of(num=NUM_ITEMS)).outputs)


def _greedy_row(name: str, run: str, make: Make, folder: Path, reference: Reference, right: Mapping[int, int]) -> Row:
    """Greedy in fp32: rounds are compared with those of a dense head where the strategy is a chain. `right`: what an
    engine without fault and speculation answers."""
    few = rig.few_words(folder)
    engine = make(few)
    certificate = rig.judged(few, engine, rig.requests_of(), reference if engine.state.tree is None else None)
    won, lost = _won_lost(right, _answered(make(rig.few_words(folder / "again"))), right)
    return Row(fault=name, run=run, certificate=certificate, num_won=won, num_lost=lost)


def _biased_row(name: str, folder: Path) -> Row:
    """Sampled in fp32; the fault is no-spec's too."""
    few, sample_rows = rig.few_words(folder), engine_round.sample_rows
    items = rig.requests_of(TEMPERATURE, num=NUM_ITEMS)
    right = _answers(rig.said(rig.no_spec_engine(few), items).outputs)
    engine_round.sample_rows = faults.biased(sample_rows)
    try:
        certificate = rig.judged(
            few, rig.spec_engine(few), rig.requests_of(TEMPERATURE), distribution=rig.distribution_of(few)
        )
        both = [_answers(rig.said(e, items).outputs) for e in (rig.spec_engine(few), rig.no_spec_engine(few))]
    finally:
        engine_round.sample_rows = sample_rows
    won, lost = _won_lost(right, *both)
    return Row(fault=name, run=f"temperature {TEMPERATURE:g}", certificate=certificate, num_won=won, num_lost=lost)


def bf16_certificate(folder: Path, fault: Callable[[Engine], None], num_prompts: int = 16) -> Certificate:
    """Greedy in bf16, 60 tokens a prompt, in torch's operations: their sums depend on the number of rows, so that
    near-ties flip, on a machine with a C compiler too."""
    with mock.patch.object(compiled, "takes", lambda rows: False):
        return _bf16_row("", folder, fault, num_prompts).certificate


def _bf16_row(name: str, folder: Path, fault: Callable[[Engine], None], num_prompts: int = 16) -> Row:
    few = FewWords(folder)
    target = load_target(few.head.parent / "target", torch.bfloat16, torch.device("cpu"))
    exact = fp32_twin(target)
    drafting = partial(named_strategy, "eagle", k=rig.K, head=few.head)
    sizes = dict(target=target, max_num_seqs=8, max_num_batched_tokens=64)

    def arm(_: FewWords) -> Engine:
        engine = make_engine(CPU, drafting(), **sizes)
        fault(engine)
        return engine

    requests = rig.requests_of(num_tokens=60, num=num_prompts)
    baseline = rig.said(make_engine(CPU, **sizes), requests)
    tolerance = measure_tolerance(target, exact, [(r.prompt_ids, baseline.outputs[r.id]) for r in requests])
    certificate = Judge(target, exact, tolerance, asked(requests)).certificate(
        "arm", rig.said(arm(few), requests), baseline
    )
    right = _answered(make_engine(CPU, target=exact))
    won, lost = _won_lost(right, _answered(arm(few)), _answered(make_engine(CPU, **sizes)))
    return Row(fault=name, run="greedy, bf16", certificate=certificate, num_won=won, num_lost=lost)


@mock.patch.object(compiled, "takes", lambda rows: False)
def rows() -> list[Row]:
    """Every fault, run now, in torch's operations."""
    cases = [
        ("tree path's keys not compacted: rejected ones read", _faulty(faults.no_compaction, TREE), ""),
        ("a rejected draft's key read", _faulty(faults.rejected_keys_read), ""),
        ("lengths off by one", _faulty(faults.stale_length), ""),
        ("stale metadata: lengths of the round before", _faulty(faults.late_metadata, is_padded=True), ", padded"),
        ("first draft accepted unverified", _faulty(faults.drafts_not_verified), ""),
        ("requests end a token early", _faulty(faults.one_token_short), ""),
        ("drafter's position off by one", _faulty(faults.drafter_position), ""),
        ("wrong d2t", _faulty(faults.wrong_d2t), ""),
        (
            "drafter's keys overwritten by padding rows",
            _faulty(faults.padding_rows_share_a_page, is_padded=True),
            ", padded",
        ),
        ("drafter's first page overwritten", _faulty(faults.padding_rows_write), ""),
    ]
    found = []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        sound = rig.few_words(Path(folder, "sound"))
        reference, right = rig.dense_reference(sound), _answered(rig.no_spec_engine(sound))
        for number, (name, make, note) in enumerate(cases):
            found.append(_greedy_row(name, f"greedy{note}", make, Path(folder, str(number)), reference, right))
        found.append(_biased_row("biased sampler, no-spec's too", Path(folder, "biased")))
        lenient = partial(faults.lenient_acceptance, within=LENIENT_LOGITS)
        name = f"drafts within {LENIENT_LOGITS:g} logits of the best accepted"
        found.append(_bf16_row(name, Path(folder, "lenient"), lenient))
    return found


def markdown(found: Sequence[Row]) -> str:
    lines = [_HEADERS, (":---", ":---", *["---"] * (len(_HEADERS) - 2)), *(row.cells() for row in found)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{HEAD}\n{table}\n{NOTES}"


HEAD = """# Planted faults and the checks that catch them

Written by `PYTHONPATH=.ns:tests python tests/harness/quality/fault_table.py` from runs on a CPU; a test compares it
with a fresh run. x: this check of `specbench certify` fails. The engine without faults passes all of them.
"""
NOTES = f"""
* The target says four words, an EAGLE-3 head guesses among them, fp32 unless the row says bf16. Padded: three requests
  in rounds of four, launched without a graph here; `tests/harness/quality/test_certify_gpu.py` runs both faults in
  graphs.
* exact match: outputs identical to no-spec's. It sees what changes outputs, but in bf16 it also fails engines without
  any fault; it cannot see a drafter's fault, nor one that no-spec shares.
* accuracy: {NUM_ITEMS} items, the answer is the word said most often, exact McNemar against no-spec, caught below 0.05.
* acceptance: against a dense head of the test's own (chains). Rounds are compared before the first other token alone:
  where a fault changes outputs, an empty cell is no miss.
* Accepting drafts within {LENIENT_LOGITS:g} logits of the best stays below the tolerance of bf16 on this target: the
  sum of regrets shows it.
"""


if __name__ == "__main__":
    FILE.write_text(markdown(rows()), encoding="utf-8")
    print(FILE.read_text(encoding="utf-8"))
