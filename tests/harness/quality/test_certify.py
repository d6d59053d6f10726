"""The parts of a certificate: scores, tolerances, rounds, distributions; and the command from end to end."""

from __future__ import annotations

import json

import pytest
import torch
from toy.compare import dense_pass
from toy.engines import asked, toy_target
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.quality.certificate.acceptance import AcceptanceComparison, Round, compare_rounds
from specbench.harness.quality.certificate.certificate import CertifySettings
from specbench.harness.quality.certificate.certify import Generated, Judge
from specbench.harness.quality.certificate.distribution import DistributionJudge, check_num_seeds
from specbench.harness.quality.certificate.plain import with_references
from specbench.harness.quality.certificate.scores import fp32_twin, output_logits
from specbench.harness.quality.certificate.tolerance import FP32_TOLERANCE, measure_tolerance
from specbench.harness.spec.arm import parse_arm
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.run.comparison import comparison_table
from specbench.reports.run.view import view_run
from specbench.reports.terminal import plain_result

PROMPT = (5, 9, 70, 33, 2)
OUTPUT = (11, 12, 40, 7, 99, 3, 3)
_TOY = (
    "--load-format dummy --model toy --dtype float32 --dataset-name random --num-prompts 2 --output-len 8 "
    "--max-model-len 1100 --num-seeds 50"
)


@pytest.fixture
def certify(tmp_path):
    """Runs the command; options given later win."""

    def call(*words: object):
        every = ["certify", *map(str, words), "--output-dir", str(tmp_path / "runs")]
        result = CliRunner().invoke(app, every, prog_name="specbench")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.mark.parametrize("rows", [None, 1, 3])
def test_scores_are_those_of_a_dense_pass(rows):
    target = toy_target()
    wanted_RV = dense_pass(target, [*PROMPT, *OUTPUT[:-1]])[0][len(PROMPT) - 1 :]
    torch.testing.assert_close(output_logits(target, PROMPT, OUTPUT, rows), wanted_RV, atol=1e-5, rtol=1e-5)


def test_the_fp32_twin_has_the_very_weights():
    narrow = dummy_target("toy", torch.bfloat16, torch.device("cpu"))
    wide = fp32_twin(narrow)
    assert wide.dtype == torch.float32 and fp32_twin(wide) is wide
    hidden_RH = torch.eye(narrow.config.hidden_size)
    torch.testing.assert_close(wide.logits(hidden_RH), narrow.logits(hidden_RH.bfloat16()).float(), atol=0, rtol=0)
    narrow_RV, wide_RV = (output_logits(m, PROMPT, OUTPUT) for m in (narrow, wide))
    assert 0 < (narrow_RV - wide_RV).abs().max() < 0.1 * wide_RV.abs().max()


def test_the_tolerance_is_fixed_in_fp32_and_measured_elsewhere():
    narrow = dummy_target("toy", torch.bfloat16, torch.device("cpu"))
    wide = fp32_twin(narrow)
    fixed = measure_tolerance(wide, wide, [(PROMPT, OUTPUT)])
    assert fixed.logits == FP32_TOLERANCE and fixed.is_exact
    measured = measure_tolerance(narrow, wide, [(PROMPT, OUTPUT)])
    error_RV = output_logits(narrow, PROMPT, OUTPUT) - output_logits(wide, PROMPT, OUTPUT)
    spread = float((error_RV.amax(1) - error_RV.amin(1)).max())
    assert FP32_TOLERANCE < measured.logits <= 3 * spread and not measured.is_exact


def _judged(mine: tuple[int, ...], theirs: tuple[int, ...]):
    target = toy_target()
    requests = asked([Request(0, PROMPT, SamplingParams())])
    judge = Judge(target, target, measure_tolerance(target, target, [(PROMPT, OUTPUT)]), requests)
    return judge.certificate("arm", Generated({0: mine}, {}), Generated({0: theirs}, {}))


def _greedy(num_tokens: int) -> tuple[int, ...]:
    text = list(PROMPT)
    for _ in range(num_tokens):
        text.append(int(dense_pass(toy_target(), text)[0][-1].argmax()))
    return tuple(text[len(PROMPT) :])


def test_a_missing_token_fails_and_a_wrong_one_is_named():
    right = _greedy(6)
    assert _judged(right, right).ok
    assert [p.partition(":")[0] for p in _judged(right[:-1], right).problems] == ["length"]
    wrong = (*right[:3], (right[3] + 1) % 128, *right[4:])
    certificate = _judged(wrong, right)
    (divergence,) = certificate.divergences
    assert (divergence.position, divergence.token, divergence.baseline_token) == (3, wrong[3], right[3])
    logits_V = dense_pass(toy_target(), [*PROMPT, *right[:3]])[0][-1]
    assert divergence.gap == pytest.approx(float(logits_V[right[3]] - logits_V[wrong[3]]), abs=1e-4)
    assert not certificate.ok and certificate.num_exact == 0


def test_rounds_are_compared_up_to_the_first_other_token():
    texts, others = {0: (1, 2, 3, 4, 5, 6)}, {0: (1, 2, 3, 4, 9, 9)}
    mine = {0: [Round(1, 2, 0, 1), Round(2, 2, 1, 2), Round(4, 2, 1, 2)]}
    theirs = {0: [Round(1, 2, 1, 2), Round(3, 2, 0, 1), Round(4, 2, 0, 1)]}
    found = compare_rounds(mine, theirs, texts, others)
    assert (found.num_rounds, found.num_lower, found.num_higher, found.num_unmatched) == (1, 1, 0, 2)
    same = compare_rounds(mine, mine, texts, texts)
    assert same.num_rounds == 3 and same.num_flipped == same.num_unmatched == 0


@pytest.mark.parametrize(
    ("higher", "lower", "exact", "loose"),
    [(0, 0, False, False), (1, 0, True, False), (20, 20, True, False), (0, 30, True, True), (40, 40, True, True)],
)
def test_how_many_rounds_may_differ(higher, lower, exact, loose):
    found = AcceptanceComparison(num_rounds=1000, num_higher=higher, num_lower=lower, num_unmatched=0)
    assert bool(found.problem(is_exact=True)) is exact and bool(found.problem(is_exact=False)) is loose


def test_a_flip_that_puts_two_engines_out_of_step_counts_once_outside_fp32():
    """The texts are the same and repeat themselves: after one flip no round of one begins where the other's does."""
    text = {0: tuple(range(100))}
    ours = {0: [Round(p, 4, 4, 5) for p in range(0, 95, 5)]}
    theirs = {0: [Round(p, 4, 4, 5) for p in range(0, 50, 5)] + [Round(50, 4, 2, 3)]}
    theirs[0] += [Round(p, 4, 4, 5) for p in range(53, 95, 5)]
    found = compare_rounds(theirs, ours, text, text)
    assert (found.num_rounds, found.num_lower, found.num_unmatched) == (11, 1, 17)
    assert "28 rounds" in found.problem(is_exact=True)
    long = AcceptanceComparison(num_rounds=200, num_higher=2, num_lower=7, num_unmatched=60)
    assert not long.problem(is_exact=False) and long.problem(is_exact=True)


def test_no_round_in_common_is_no_pass():
    apart = AcceptanceComparison(num_rounds=0, num_higher=0, num_lower=0, num_unmatched=9)
    assert apart.problem(is_exact=True) and apart.problem(is_exact=False)
    without_rounds = AcceptanceComparison(num_rounds=0, num_higher=0, num_lower=0, num_unmatched=0)
    assert not without_rounds.problem(is_exact=True) and not without_rounds.problem(is_exact=False)


def test_rounds_out_of_step_must_not_be_more_than_the_text_takes():
    """A drafter that gets worse where no round of the two meets: seen by the number of rounds for the same text."""
    text = {0: tuple(range(300))}
    plain = {0: [Round(p, 4, 4, 5) for p in range(0, 300, 5)]}
    halved = {0: [Round(p, 4, 1, 2) for p in range(0, 300, 2)]}
    assert compare_rounds(plain, plain, text, text).num_more == 0
    assert compare_rounds(halved, plain, text, text).num_more == 90
    slower = AcceptanceComparison(num_rounds=100, num_higher=0, num_lower=1, num_unmatched=60, num_more=20)
    assert slower.problem(is_exact=False) == "140 rounds instead of 120 for the same text"
    assert not AcceptanceComparison(num_rounds=100, num_higher=0, num_lower=1, num_unmatched=60, num_more=2).problem(
        is_exact=False
    )


@pytest.mark.parametrize("spread", [0.3, 0.8])
def test_places_are_uniform_for_draws_of_the_target_and_for_no_others(spread):
    target, generator = toy_target(), torch.Generator().manual_seed(1)
    logits_V = dense_pass(target, PROMPT)[0][-1]
    temperature = spread * float(logits_V.std())
    judge = DistributionJudge(target, PROMPT, temperature)

    def drawn(at: float) -> dict[int, tuple[int, ...]]:
        ids = torch.multinomial(torch.softmax(logits_V / at, 0), 400, replacement=True, generator=generator)
        return {i: (int(token),) for i, token in enumerate(ids)}

    assert judge.test(drawn(temperature)).ok and judge.test(drawn(temperature)).is_telling
    assert not judge.test(drawn(temperature / 2)).ok


def test_a_certain_target_is_no_evidence():
    said = {i: OUTPUT for i in range(50)}
    assert not DistributionJudge(toy_target(), PROMPT, 1.0).test(said).is_telling


def test_bad_settings_say_what_is_allowed():
    with pytest.raises(ValueError, match="num_seeds: 49"):
        check_num_seeds(49)
    with pytest.raises(ValueError, match="temperature"):
        CertifySettings(temperatures=(0.8, 0.8), num_seeds=0)
    with pytest.raises(ValueError, match="only real acceptance"):
        with_references([parse_arm("ngram:k=2,acceptance=synthetic:2.0", {})])


def test_every_strategy_gets_a_plain_arm_once():
    arms, references = with_references([parse_arm("ngram:k=2", {}), parse_arm("ngram:k=2,sync=multi", {})])
    labels = [arm.label for arm in arms]
    assert labels[0] == "no-spec" and len(arms) == 4
    assert references == {"ngram:k=2": labels[-1], "ngram:k=2,sync=multi": labels[-1]}
    assert with_references(arms) == (arms, references)


def test_beside_another_engine_s_arms_the_plain_arms_are_our_own():
    """With --engine vllm an arm that names none would be vLLM's."""
    arms, _ = with_references([parse_arm("specbench/ngram:k=2")])
    assert arms[0].label == "specbench/no-spec" and {arm.engine_name for arm in arms} == {"specbench"}


def test_the_command_stores_what_it_found_and_goes_on(certify, tmp_path):
    result = certify("-s", "ngram:k=2", *_TOY.split())
    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "runs").iterdir()
    stored = json.loads((path / "certificate.json").read_text())
    assert stored["status"] == "complete" and len(stored["certificates"]) == 6
    assert all(row["ok"] and row["num_exact"] == 2 for row in stored["certificates"])
    assert "| ngram:k=2 |" in (path / "certificate.md").read_text()
    # One judgement lost, its outputs altered: the run goes on with that arm alone, and says what it sees.
    stored["certificates"] = [r for r in stored["certificates"] if (r["arm"], r["temperature"]) != ("ngram:k=2", 0.0)]
    (path / "certificate.json").write_text(json.dumps(stored))
    for file in (path / "certificate-outputs").iterdir():
        said = json.loads(file.read_text())
        if (said["arm"], said["temperature"]) == ("ngram:k=2", 0.0):
            said["outputs"]["0"][4] = (said["outputs"]["0"][4] + 1) % 128
            file.write_text(json.dumps(said))
    words = ["certify", "--run", str(path), "--format", "json", "-q"]
    again = CliRunner().invoke(app, words, prog_name="specbench")
    assert again.exit_code == 6
    failed = [row["arm"] for row in json.loads(again.stdout)["certificates"] if not row["ok"]]
    assert failed == ["ngram:k=2"]


def test_a_failed_certificate_marks_the_rows_of_its_run(tmp_path):
    words = "run -s no-spec -s ngram:k=2 --load-format dummy --model toy --dtype float32 --dataset-name random"
    words += " --random-input-len 12 --random-output-len 8 --num-prompts 2 --num-repeats 1 --warmup-max-s 0.02"
    words += f" --max-model-len 64 -q --output-dir {tmp_path}"
    assert CliRunner().invoke(app, words.split(), prog_name="specbench").exit_code == 0
    (path,) = tmp_path.iterdir()
    arguments = ["certify", "--run", str(path), "--temperature", "0", "-q"]
    assert CliRunner().invoke(app, arguments, prog_name="specbench").exit_code == 0
    assert "NOT LOSSLESS" not in plain_result(comparison_table(view_run(path)))
    stored = json.loads((path / "certificate.json").read_text())
    for row in stored["certificates"]:
        if row["arm"] == "ngram:k=2":
            row.update(ok=False, problems=["regret: planted"])
    (path / "certificate.json").write_text(json.dumps(stored))
    lines = [line for line in plain_result(comparison_table(view_run(path))).splitlines() if "NOT LOSSLESS" in line]
    assert len(lines) == 1 and lines[0].startswith("ngram:k=2") and "regret: planted" in lines[0]
    assert RunDirectory.open(path).record.status == "complete"


def test_options_beside_a_stored_run_are_refused(certify, tmp_path):
    result = CliRunner().invoke(app, ["certify", "--run", str(tmp_path), "-s", "ngram"], prog_name="specbench")
    assert result.exit_code == 2 and "--strategy" in result.stderr
    assert certify("-s", "ngram:k=2,acceptance=synthetic:2.0", *_TOY.split()).exit_code == 2
    assert certify().exit_code == 2
