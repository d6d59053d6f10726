"""`specbench ab --resume` of an experiment that has ended and of which a line of blocks.jsonl was lost since."""

from __future__ import annotations

from specbench.harness.judge.ab_verdict import judge
from specbench.harness.store.ab_blocks import missing_blocks


def test_the_block_is_measured_again(cli, toy, only_run):
    at = toy.index("--num-repeats")
    words = ["-A", "no-spec", "-B", "ngram:k=2", "--blocks", 2, "--no-verdict", "--in-process", "--quiet"]
    assert cli("ab", *words, *toy[1:at], *toy[at + 2 :]).exit_code == 4
    run, before = only_run(), only_run().frames().requests
    file = run.path / "blocks.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert judge(run).num_rejected == 1
    assert cli("ab", "--resume", run.path, "--quiet").exit_code == 4
    again, after = only_run(), only_run().frames().requests
    assert judge(again).num_kept == 2 and missing_blocks(again.record.ab.plan, again) == []
    times = [{n: list(frame[frame["repeat"] == n]["t_last_ns"]) for n in (0, 1)} for frame in (before, after)]
    assert times[0][0] == times[1][0] and times[0][1] != times[1][1], "block 2 is new, block 1 as it was"
