import json

import pytest
from run_samples import begun, chain_block, frame, phase, prefill, request, sample_run, step

from specbench.harness.metrics.metrics import block_metrics
from specbench.harness.metrics.over_repeats import spreads_of
from specbench.harness.metrics.run_results import results
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.files import to_plain
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.schema import Frames, build_table


def test_every_figure_of_a_block_of_one_arm_by_hand():
    block = chain_block([4, 0, 2], num_requests=1, round_ms=10.0)
    figures = block_metrics(*(frame(name, rows) for name, rows in block.items()))
    assert figures.values["num_output_tokens"] == 1 + 5 + 1 + 3
    assert figures.values["tpot_ms.mean"] == pytest.approx(30 / 9)
    assert figures.values["tps"] == pytest.approx(10 / 0.050)
    assert figures.values["decode_tps"] == pytest.approx(9 / 0.030)
    phases = {name: figures.values[f"phases_ms.plain.{name}"] for name in ("gap", "verify", "draft_first")}
    assert phases == pytest.approx({"gap": 1, "verify": 6.75, "draft_first": 2.25}) and figures.phases == "plain"
    assert figures.values["accounting.residual"] == pytest.approx(0, abs=1e-9)
    assert figures.acceptance.acceptance_length == pytest.approx(3) == figures.values["acceptance.acceptance_length"]


def test_summary_holds_medians_and_extremes_over_repeats(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("no-spec"))
    for repeat, round_ms in enumerate((10.0, 20.0, 12.0)):
        run.append("no-spec", repeat, **chain_block([0] * 10, k=0, round_ms=round_ms))
    tpot = results(run.frames()).arms[0].spreads["tpot_ms.mean"]
    assert (tpot.median, tpot.min, tpot.max, tpot.n) == (12, 10, 20, 3)


def test_a_kind_of_round_that_one_repeat_has_is_not_the_median_of_all():
    """Two rounds of ten missed their graph in one repeat of three; a repeat that tells no kinds apart has none."""
    whole = {"rounds_by_graph.full": 10, "rounds_by_drafts.4": 1.0, "tps": 5.0}
    missed = {
        "rounds_by_graph.full": 8,
        "rounds_by_graph.none": 2,
        "rounds_by_drafts.4": 0.8,
        "rounds_by_drafts.0": 0.2,
    }
    found = spreads_of([whole, missed, whole, {"tps": 7.0}])
    medians = {name: (spread.median, spread.max, spread.n) for name, spread in found.items()}
    assert medians == {
        "rounds_by_graph.full": (10, 10, 3),
        "rounds_by_graph.none": (0, 2, 3),
        "rounds_by_drafts.4": (1, 1, 3),
        "rounds_by_drafts.0": (0, 0.2, 3),
        "tps": (5, 7, 3),
    }


def test_failed_arm_is_a_row_with_its_error(tmp_path):
    baseline, eagle, failed = results(sample_run(tmp_path).frames()).arms
    assert failed.status == "failed" and failed.num_repeats == 0 and failed.spreads == {}
    assert failed.error == "RuntimeError: graph `one` refused | no GPU"
    assert failed.marks == (f"failed: {failed.error}",)
    assert eagle.marks == ("synthetic",) and baseline.speedup is None and failed.speedup is None


def test_a_repeat_that_failed_marks_the_arm_and_keeps_the_others(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("no-spec"))
    run.append("no-spec", 0, **chain_block([0] * 4, k=0))
    run.fail_blocks([("no-spec", 1)], "out of memory")
    (arm,) = results(run.frames()).arms
    assert arm.status == "partial" and arm.num_repeats == 1 and arm.num_requests == 4
    assert arm.marks == ("1 of 2 repeats failed",)


def test_arm_that_never_ran(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("no-spec", "eagle"))
    assert [(arm.status, arm.marks) for arm in results(run.frames()).arms] == [("pending", ("not run",))] * 2


def test_an_arm_that_never_ran_says_so_beside_how_it_is_driven(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("no-spec", "eagle"))
    run.describe_arm("eagle", config=ArmSetup(driven="HTTP"))
    assert [mark for mark in results(run.frames()).arms[1].marks if "speed-up" not in mark] == ["not run"]


def test_failed_requests_and_large_residuals_are_marked():
    requests = [
        request(0, first_ms=10, last_ms=30, num_output_tokens=3),
        request(1, first_ms=0, last_ms=0, num_output_tokens=0, finish_reason="error", error="boom"),
    ]
    steps = [prefill(0, 0, 0, 10), step(1, 0, 10, 20), step(2, 0, 20, 30)]
    phases = [phase(1, "verify", 9), phase(2, "verify", 9)]
    frames = Frames(requests=frame("requests", requests), steps=frame("steps", steps), phases=frame("phases", phases))
    (arm,) = results(frames).arms
    assert arm.marks == ("1 of 2 requests failed", "residual +10.0%")
    assert arm.error == "boom"


def paired(tpots_ms, arm, repeat=0, prompt_ids=("a", "b", "c", "d"), first_id=0):
    return frame(
        "requests",
        [
            request(first_id + i, first_ms=0, last_ms=10 * tpot, num_output_tokens=11, prompt_id=prompt)
            for i, (tpot, prompt) in enumerate(zip(tpots_ms, prompt_ids, strict=True))
        ],
        arm=arm,
        repeat=repeat,
    )


def frames_of(*requests, arms):
    import pandas as pd

    described = tuple(ArmRecord(label=label, strategy=strategy) for label, strategy in arms)
    empty = {"steps": frame("steps", []), "phases": frame("phases", [])}
    return Frames(requests=pd.concat(requests, ignore_index=True), **empty, arms=described)


def test_speed_up_is_the_geometric_mean_of_paired_ratios():
    frames = frames_of(
        paired([8, 8, 8, 8], "fast"),
        paired([8, 16, 32, 64], "base", first_id=100),
        arms=(("fast", "eagle"), ("base", "no_spec")),
    )
    fast, base = results(frames).arms
    assert base.speedup is None and fast.speedup is not None
    assert fast.speedup.baseline == "base"
    assert fast.speedup.tpot_ratio == pytest.approx((1 * 2 * 4 * 8) ** 0.25)
    assert fast.speedup.num_prompts == 4 and fast.speedup.num_pairs == 4
    assert fast.speedup.same_output_rate == 1
    assert fast.speedup.tps_ratio == pytest.approx((44 / 0.080) / (44 / 0.640))


def test_one_repeat_has_no_interval_however_many_prompts():
    prompts = [f"p{n}" for n in range(40)]
    frames = frames_of(
        paired([20.0] * 40, "base", prompt_ids=prompts),
        paired([2.0 + n / 100 for n in range(40)], "fast", prompt_ids=prompts),
        arms=(("base", "no-spec"), ("fast", "eagle")),
    )
    speedup = results(frames).arms[1].speedup
    assert speedup is not None and speedup.tpot_ratio is not None and 8 < speedup.tpot_ratio < 10
    assert (speedup.tpot_ratio_low, speedup.tpot_ratio_high) == (None, None)
    assert "one repeat has no interval" in speedup.method


def test_prompts_that_ran_in_one_block_each_have_no_interval():
    """As the batches of an evaluation."""
    frames = frames_of(
        *(paired([10, 12], "base", repeat=n, prompt_ids=(f"a{n}", f"b{n}")) for n in range(3)),
        *(paired([5, 5], "fast", repeat=n, prompt_ids=(f"a{n}", f"b{n}")) for n in range(3)),
        arms=(("base", "no-spec"), ("fast", "eagle")),
    )
    speedup = results(frames).arms[1].speedup
    assert speedup is not None and speedup.num_prompts == 6 and speedup.tpot_ratio_low is None


def test_speed_up_pairs_within_a_repeat_and_resamples_blocks_and_prompts():
    frames = frames_of(
        paired([10, 10], "base", repeat=0, prompt_ids=("a", "b")),
        paired([5, 10], "fast", repeat=0, prompt_ids=("a", "b")),
        paired([40, 40], "base", repeat=1, prompt_ids=("a", "b")),
        paired([5, 40], "fast", repeat=1, prompt_ids=("a", "b")),
        arms=(("base", "no-spec"), ("fast", "eagle")),
    )
    speedup = results(frames).arms[1].speedup
    assert speedup is not None
    assert (speedup.num_prompts, speedup.num_pairs) == (2, 4)
    assert speedup.tpot_ratio == pytest.approx((2 * 8) ** 0.25)  # prompt a: sqrt(2 * 8); prompt b: 1
    assert (speedup.tpot_ratio_low, speedup.tpot_ratio_high) == pytest.approx((1, 8)), "over prompts alone: 4"
    assert "over 2 prompts and 2 blocks" in speedup.method


def test_other_prompts_do_not_pair():
    frames = frames_of(
        paired([10, 10], "base", prompt_ids=("a", "b")),
        paired([5, 5], "fast", prompt_ids=("c", "d")),
        arms=(("base", "no-spec"), ("fast", "eagle")),
    )
    speedup = results(frames).arms[1].speedup
    assert speedup is not None and speedup.tpot_ratio is None and speedup.num_pairs == 0


def test_an_answer_of_one_token_is_compared_though_it_has_no_tpot():
    short = paired([2, 2], "fast", prompt_ids=("a", "b")).assign(
        num_output_tokens=[1, 11], output_sha256=["cut", "same"]
    )
    whole = paired([4, 4], "base", prompt_ids=("a", "b")).assign(output_sha256="same")
    failed = paired([3], "fast", first_id=9, prompt_ids=("z",)).assign(finish_reason="error", output_sha256="same")
    other = paired([3], "base", first_id=9, prompt_ids=("z",)).assign(output_sha256="same")
    frames = frames_of(short, whole, failed, other, arms=(("base", "no-spec"), ("fast", "eagle")))
    speedup = results(frames).arms[1].speedup
    assert speedup is not None and (speedup.num_prompts, speedup.num_pairs, speedup.same_output_rate) == (1, 2, 0.5)


def test_without_a_baseline_arm_there_is_no_speed_up():
    frames = frames_of(paired([1, 2, 3, 4], "eagle"), arms=(("eagle", "eagle"),))
    assert results(frames).arms[0].speedup is None


def test_results_are_plain_and_cover_every_measured_block(tmp_path):
    found = json.loads(json.dumps(to_plain(results(sample_run(tmp_path).frames())), allow_nan=False))
    assert len(found["arms"]) == 3
    assert sorted((b["arm"].split(":")[0], b["repeat"]) for b in found["blocks"]) == [
        ("eagle", 0),
        ("eagle", 1),
        ("no-spec", 0),
        ("no-spec", 1),
    ]


def test_log_probabilities_of_no_token_have_no_mean():
    """A block whose answers are all empty."""
    block = chain_block([0], num_requests=1)
    rows = {"request_id": [0], "part": ["output"], "token_logprobs": [[]], "top_token_ids": [[]], "top_logprobs": [[]]}
    frames = [frame(name, block[name]) for name in ("requests", "steps", "phases")]
    empty = build_table("logprobs", "a", 0, rows).to_pandas()
    assert block_metrics(*frames, logprobs=empty).values["logprobs.output"] is None
