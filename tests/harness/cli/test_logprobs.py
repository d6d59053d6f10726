"""Log-probabilities from the option to the run directory, `show` and Python, under every arm alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import specbench
from specbench.harness.engines.several import Engines
from specbench.harness.judge.keys import mismatches
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions

ARMS = "-s no-spec -s ngram:k=3,min_n=1 -s eagle-topk:topk=2,num_steps=2,num_draft_tokens=4,head=random"


def test_every_arm_stores_the_same(cli, toy, only_run):
    result = cli(*toy, *ARMS.split(), "--logprobs", "2", "--prompt-logprobs", "0", "--temperature", "0.8")
    assert result.exit_code == 0, result.output
    directory = only_run()
    run = specbench.open_run(directory.path)
    rows, requests = run.logprobs, run.requests.set_index(["arm", "repeat", "request_id"])
    assert len(rows) == 2 * len(requests) and "logprobs.parquet" in run.record.files
    for row in rows.itertuples():
        asked, num = requests.loc[row.arm, row.repeat, row.request_id], len(row.token_logprobs)
        if row.part == "output":
            assert num == asked.num_output_tokens and len(row.top_logprobs) == len(row.top_token_ids) == 2 * num
            at, ids = np.asarray(asked.output_token_ids), row.top_token_ids.reshape(num, 2)
            is_best = ids[:, 0] == at
            np.testing.assert_array_equal(row.token_logprobs[is_best], row.top_logprobs.reshape(num, 2)[is_best, 0])
            assert (row.token_logprobs <= row.top_logprobs.reshape(num, 2)[:, 0]).all()
        else:
            assert num == asked.num_prompt_tokens - 1 and not len(row.top_logprobs)
    keys = ["request_id", "part"]
    plain = rows[(rows["arm"] == "no-spec") & (rows["repeat"] == 0)].set_index(keys)["token_logprobs"]
    for row in rows.itertuples():
        np.testing.assert_allclose(row.token_logprobs, plain[row.request_id, row.part], atol=2e-4)
    said = np.concatenate(list(plain.xs("output", level="part")))
    assert run.table()["logprobs.output"]["no-spec"] == pytest.approx(said.mean(), abs=1e-6)
    shown = cli("show", str(directory.path), "--format", "md")
    assert "Log-probabilities" in (directory.path / "report.md").read_text()
    assert shown.exit_code == 0 and "Log-probabilities" in shown.stdout
    assert mismatches("", run.record, _without(run.record))[0].key == "log-probabilities"


def _without(record):
    return replace(record, sampling=replace(record.sampling, logprobs=None, prompt_logprobs=None))


def test_what_nobody_asked_for_leaves_nothing(cli, toy, only_run):
    assert cli(*toy, "-s", "no-spec").exit_code == 0
    directory = only_run()
    assert not list(directory.path.glob("**/logprobs*")) and "logprobs.parquet" not in directory.record.files
    assert not len(directory.frames().logprobs)
    assert "Log-probabilities" not in (directory.path / "report.md").read_text()


def test_a_stop_string_cuts_them_too(cli, toy, only_run):
    assert cli(*toy, "-s", "ngram:k=3,min_n=1", "--logprobs", "0", "--stop-token-id", "3").exit_code == 0
    frames = only_run().frames()
    lengths = frames.requests.set_index(["repeat", "request_id"])["num_output_tokens"]
    assert all(len(r.token_logprobs) == lengths[r.repeat, r.request_id] for r in frames.logprobs.itertuples())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--logprobs", "21"], "logprobs: 21 is not allowed; allowed: 0 to 20"),
        (["--prompt-logprobs", "-1"], "prompt_logprobs: -1 is not allowed; allowed: 0 to 20"),
        (["--logprobs", "1", "--acceptance", "synthetic:2.0"], "logprobs: are not allowed with forced acceptance"),
    ],
)
def test_what_cannot_be_is_refused(cli, toy, words, said):
    result = cli(*toy, "-s", "ngram:k=2", *words)
    assert result.exit_code == 2 and said in result.stderr


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (dict(logprobs=1), "logprobs: 1 is not allowed with vllm/no-spec: only our own engine's are stored"),
        (
            dict(mixed_chunk_size=64),
            "mixed_chunk_size: 64 is not allowed with vllm/no-spec: only our own engine limits",
        ),
    ],
)
def test_another_engine_is_refused_before_it_starts(asked, said):
    with pytest.raises(ValueError, match=said):
        Engines("specbench").resolve(parse_arm("vllm/no-spec"), Conditions(**asked))
