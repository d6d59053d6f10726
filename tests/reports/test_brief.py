"""What a terminal shows of a run: the answer, a table that fits, and what was run."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from run_samples import sample_run
from toy.split_runs import CONFIG

from specbench.harness.cli.output import print_how
from specbench.harness.metrics.doubts import CHANGED
from specbench.harness.store.arm_record import NOT_PLAUSIBLE
from specbench.harness.store.inputs_record import SamplingRecord
from specbench.harness.store.results import Speedup
from specbench.reports.run.answer import answer, ratio_text
from specbench.reports.run.brief import about, bars, brief_table
from specbench.reports.run.notes import conventions
from specbench.reports.run.view import RunView, view_run
from specbench.reports.terminal import print_result


@pytest.fixture
def view(tmp_path) -> RunView:
    return view_run(sample_run(tmp_path))


def with_ratios(view: RunView, **ratios: tuple[float, float | None, float | None]) -> RunView:
    """The run with these TPOT ratios and their ends; arms that are not named lose theirs."""
    base = next(arm.speedup for arm in view.arms if arm.speedup)
    arms = []
    for name, arm in zip(("no_spec", "eagle", "naive"), view.arms, strict=True):
        speedup: Speedup | None = None
        if name in ratios:
            ratio, low, high = ratios[name]
            speedup = replace(base, tpot_ratio=ratio, tpot_ratio_low=low, tpot_ratio_high=high)
            speedup = replace(speedup, same_output_rate=0.75, num_pairs=8)
        arms.append(replace(arm, speedup=speedup, num_repeats=3, marks=()))
    return replace(view, arms=tuple(arms))


def test_a_cell_with_an_interval_that_says_nothing_has_no_figure(view):
    noisy = with_ratios(view, eagle=(1.2, 0.9, 1.5), naive=(1.47, 0.25, 9.0))
    assert [ratio_text(arm) for arm in noisy.arms[1:]] == ["1.20x [0.90, 1.50]", "inconclusive [0.25, 9.00]"]


def test_the_notes_name_every_baseline_of_a_run_with_several(view):
    both = with_ratios(view, eagle=(1.5, 1.4, 1.6), naive=(1.2, 1.1, 1.3))
    no_spec, eagle, naive = both.arms
    assert "TPS against 'no-spec' of this run" in "\n".join(conventions(both))
    other = replace(naive, speedup=replace(naive.speedup, baseline="vLLM, plain"))
    notes = "\n".join(conventions(replace(both, arms=(no_spec, eagle, other))))
    names = "'no-spec' or 'vLLM, plain', whichever is of the arm's own engine"
    assert f"TPS against {names} of this run" in notes and f"tokens equal those of {names}; below 100%" in notes


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        (
            {"naive": (1.54, 1.41, 1.66)},
            "naive-eagle is 1.54x [1.41, 1.66] as fast as no-spec in TPOT; 6 of 8 outputs equal",
        ),
        (
            {"naive": (1.03, 0.97, 1.1)},
            "No arm is clearly faster than no-spec in TPOT: naive-eagle is 1.03x [0.97, 1.10]",
        ),
        ({"naive": (0.8, 0.7, 0.9)}, "No arm is faster than no-spec in TPOT: naive-eagle is 0.80x [0.70, 0.90] as"),
        ({"naive": (11.22, None, None)}, "naive-eagle is 11.22x as fast as no-spec in TPOT, without an interval"),
        (
            {"naive": (1.5, 1.4, 1.6), "eagle": (1.4, 1.3, 1.45)},
            "|y</b> may be as fast as naive-eagle; 6 of 8 outputs equal.",
        ),
        ({"naive": (1.5, 1.4, 1.6), "eagle": (1.2, 1.1, 1.39)}, "as fast as no-spec in TPOT; 6 of 8 outputs equal."),
        (
            {"naive": (1.47, 0.25, 9.0), "eagle": (0.6, 0.31, 1.54)},
            "naive-eagle may be faster than no-spec in TPOT or not: inconclusive [0.25, 9.00]; ",
        ),
        (
            {"naive": (0.85, 0.16, 1.69), "eagle": (0.69, 0.27, 0.98)},
            "naive-eagle may be faster than no-spec in TPOT or not: inconclusive [0.16, 1.69]; ",
        ),
        ({"naive": (11.22, None, None), "eagle": (1.4, 1.3, 1.5)}, "naive-eagle is 11.22x as fast as no-spec in TPOT"),
        ({"naive": (0.5, 0.16, 1.69), "eagle": (0.69, 0.6, 0.98)}, "No arm is clearly faster than no-spec in TPOT: "),
        ({"naive": (1.47, 0.25, 9.0), "eagle": (1.4, 1.3, 1.5)}, "|y</b> is 1.40x [1.30, 1.50] as fast as no-spec"),
        ({}, "no-spec: "),
    ],
)
def test_the_answer_claims_what_the_intervals_bear(view, ratios, said):
    assert said in answer(with_ratios(view, **ratios))


@pytest.mark.parametrize("word", [NOT_PLAUSIBLE, CHANGED])
def test_the_answer_does_not_hide_what_was_generated(view, word):
    fast = with_ratios(view, naive=(1.54, 1.41, 1.66))
    marked = replace(fast, arms=tuple(replace(arm, marks=(f"{word}: why",)) for arm in fast.arms))
    assert answer(marked).endswith(f"6 of 8 outputs equal; {word}.") and word not in answer(fast)


def test_outputs_that_nobody_compared_are_not_called_equal(view):
    fast = with_ratios(view, naive=(1.54, 1.41, 1.66))
    arms = [replace(a, speedup=a.speedup and replace(a.speedup, same_output_rate=None)) for a in fast.arms]
    assert answer(replace(fast, arms=tuple(arms))).endswith("in TPOT; outputs were not compared.")


def test_outputs_of_forced_acceptance_are_not_judged(view):
    fast = with_ratios(view, naive=(1.54, 1.41, 1.66))
    forced = replace(fast, arms=tuple(replace(arm, marks=("synthetic acceptance (2.0)",)) for arm in fast.arms))
    assert answer(forced).endswith("in TPOT; outputs not judged (forced acceptance).")


def test_an_arm_that_was_timed_elsewhere_is_not_the_answer(view):
    """Its factor is no verdict, however large it is."""
    places = ("in process", "in process", "HTTP")
    arms = [replace(a, config=replace(a.config, driven=p)) for a, p in zip(view.record.arms, places, strict=True)]
    elsewhere = with_ratios(view, naive=(3.0, 2.9, 3.1), eagle=(1.2, 1.1, 1.3))
    elsewhere = replace(elsewhere, record=replace(view.record, arms=tuple(arms)))
    assert answer(elsewhere).startswith("eagle:k=4") and "1.20x" in answer(elsewhere)


def test_nothing_measured_is_said_with_its_reason(view):
    arms = tuple(replace(arm, num_repeats=0, error="RuntimeError: out of memory") for arm in view.arms)
    assert answer(replace(view, arms=arms)) == "No repeat was completed: RuntimeError: out of memory"
    lost = replace(view, arms=tuple(replace(arm, error=None) for arm in arms))
    assert answer(lost) == "No repeat was completed: running"
    lost = replace(lost, record=replace(view.record, status="complete"))
    assert answer(lost).startswith("No repeat was completed: its requests are missing; resume the run")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_is_one_and_fits(view, width):
    console = Console(width=width, force_terminal=True, record=True, file=io.StringIO())
    print_result(brief_table(view, width), console)
    text = console.export_text()
    assert sum(line.startswith("strategy") for line in text.splitlines()) == 1
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert "speed-up" in text and "TPS" in text and "toy, first 4" not in text


def test_what_was_run_takes_three_lines(view, capsys):
    *marks, prompts, served = brief_table(view, None).notes
    assert "(sha256 abababababab), " in prompts and prompts.endswith("greedy, seed 42, 2 repeats")
    assert "toy-model" in served and "Test CPU" in served
    print_how(view.record.command)
    assert capsys.readouterr().out == f"{view.record.command}\n"
    assert any(mark.startswith("naive-eagle: failed: RuntimeError") for mark in marks)


def test_whatever_differs_from_plain_greedy_decoding_is_said(view):
    sampling = SamplingRecord(
        temperature=0.8,
        top_k=0,
        top_p=0.9,
        ignore_eos=True,
        seed=7,
        max_concurrency=4,
        edits="min_p=0.05",
        stop=(".",),
        logprobs=2,
    )
    *_, prompts, _ = brief_table(replace(view, record=replace(view.record, sampling=sampling)), None).notes
    said = (
        "concurrency 4, temperature 0.8, top_p=0.9, min_p=0.05, ignore_eos, stop=['.'], logprobs=2, seed 7, 2 repeats"
    )
    assert prompts.endswith(said)


def test_a_temperature_grid_is_not_called_greedy(view):
    sampling = SamplingRecord.of(replace(CONFIG, temperature_grid=(0.0, 0.5)))
    assert sampling.temperature is None and sampling.is_sampled
    *_, prompts, _ = brief_table(replace(view, record=replace(view.record, sampling=sampling)), None).notes
    assert "temperatures 0, 0.5, " in prompts and "greedy" not in prompts


def test_bars_show_the_rates_by_position():
    assert bars((1.0, 0.5, None, 0.0)) == "1.00 █▅ ▁" and bars(()) == "-"


def test_quantized_products_are_named_beside_the_dtype(view):
    plain = replace(view.record.model, dtype="bfloat16", device="cuda")
    said = "fp8 e4m3 block 128x128, dequantised to bfloat16"
    for model, words in ((plain, "bfloat16 on cuda"), (replace(plain, arithmetic=said), f"bfloat16 ({said}) on cuda")):
        assert words in about(replace(view, record=replace(view.record, model=model)))[-1]
