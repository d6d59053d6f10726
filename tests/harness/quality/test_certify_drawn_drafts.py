"""Certificates of arms that draw their drafts: judged by distribution where no-spec's own tokens are not to be had."""

from __future__ import annotations

import json

import pytest
from toy.engines import generate, make_engine, named_strategy, outputs, request
from toy.plans import CPU
from toy.prompts import text_prompt
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.engines.native.core import sampled_drafts
from specbench.harness.quality.certificate.certify import _unshown
from specbench.harness.quality.certificate.distribution import DistributionJudge, DistributionTest

ARM = "draft-model:draft=self:1,k=3,draft_sample_method=probabilistic"
WORDS = (
    "certify --load-format dummy --model toy --dtype float32 --dataset-name random --num-prompts 2 "
    "--output-len 8 --max-model-len 1100 --temperature 0 --temperature 0.12"
).split()


def certified(folder, num_seeds: int) -> tuple[int, dict[tuple[str, float], dict], str]:
    words = [*WORDS, "-s", ARM, "--num-seeds", str(num_seeds), "--output-dir", str(folder / "runs")]
    result = CliRunner().invoke(app, words, prog_name="specbench")
    (path,) = (folder / "runs").iterdir()
    rows = json.loads((path / "certificate.json").read_text())["certificates"]
    return result.exit_code, {(r["arm"], r["temperature"]): r for r in rows}, (path / "certificate.md").read_text()


def test_greedy_texts_are_judged_as_ever_and_sampled_ones_by_distribution(tmp_path):
    code, rows, table = certified(tmp_path, 50)
    assert code == 0, [row["problems"] for row in rows.values()]
    greedy, sampled = rows[ARM, 0.0], rows[ARM, 0.12]
    assert greedy["num_exact"] == 2 and greedy["tolerance"] > 0 and not greedy.get("judged_by")
    assert sampled["num_exact"] < 2 and sampled["tolerance"] is None and sampled["distribution"]["num_seeds"] == 50
    assert sampled["acceptance"]["num_rounds"] > 0, "the plain mode draws the same numbers"
    assert "drawn drafts use different random numbers than no-spec" in table
    assert rows["no-spec", 0.12]["tolerance"] > 0


def test_no_seeds_is_no_pass(tmp_path):
    code, rows, _ = certified(tmp_path, 0)
    assert code == 6 and rows[ARM, 0.0]["ok"]
    assert [p.partition(":")[0] for p in rows[ARM, 0.12]["problems"]] == ["distribution"]


@pytest.mark.parametrize("has_residual", [True, False])
def test_seeds_tell_a_sampler_without_residual(monkeypatch, has_residual):
    """A rejected draft's place is drawn from all of p."""
    real = sampled_drafts.reject_drafts
    if not has_residual:
        monkeypatch.setattr(sampled_drafts, "reject_drafts", lambda p, *others: (real(p, *others)[0], p))
    strategy = named_strategy("draft-model", draft="self:1", k=3, draft_sample_method="probabilistic")
    engine = make_engine(CPU, strategy, max_num_seqs=100, max_num_batched_tokens=900, max_model_len=32, page_size=32)
    prompt = text_prompt(3, 8)
    asked = [request(i, prompt, max_tokens=4, seed=i, temperature=0.12) for i in range(1000)]
    said = outputs(generate(engine, asked))
    assert DistributionJudge(engine.target, prompt, 0.12).test(said).ok == has_residual


def test_few_texts_are_no_evidence():
    few, many = (DistributionTest(num_seeds=400, num_texts=n, p_values=(0.5,)) for n in (9, 10))
    assert len(list(_unshown(few))) == 1 and not list(_unshown(many))
