"""`--temperature-grid`: every prompt at every temperature, lossless at each, and a table that tells them apart."""

from __future__ import annotations

import pytest

GRID = ("--temperature-grid", 0, "--temperature-grid", 0.9)


def test_a_grid_in_one_run(cli, toy, only_run):
    result = cli(*toy, *GRID, "-s", "no-spec", "-s", "ngram:k=2,min_n=1", "--max-concurrency", 4)
    assert result.exit_code == 0, result.output
    run = only_run()
    frames = run.frames()
    prompts = set(frames.requests["prompt_id"])
    assert len(prompts) == 6 and {name.partition("@")[2] for name in prompts} == {"T=0", "T=0.9"}
    texts = {row.prompt_id: list(row.output_token_ids) for row in frames.requests.itertuples() if row.arm == "no-spec"}
    firsts = {name.partition("@")[0] for name in prompts}
    assert any(texts[f"{first}@T=0"] != texts[f"{first}@T=0.9"] for first in firsts), "nothing was sampled"
    assert run.record.results.arms[1].speedup.same_output_rate == 1
    report = (run.path / "report.md").read_text()
    assert "Acceptance length by temperature" in report and "each at temperatures 0, 0.9" in report
    assert "Acceptance length by tokens of context" not in report, "all contexts are short"


def test_a_sweep_counts_every_prompt_at_each_temperature(cli, toy):
    result = cli("sweep", *toy[1:], *GRID, "-s", "ngram:k=2", "--max-concurrency", "1,6", "--dry-run")
    assert result.exit_code == 0 and "6 prompts in each block" in result.stdout, result.output


@pytest.mark.parametrize("values", [(0.5, 0.5), (-1,)])
def test_a_grid_that_cannot_be(cli, toy, values):
    words = [word for value in values for word in ("--temperature-grid", value)]
    result = cli(*toy, *words, "-s", "no-spec")
    assert result.exit_code == 2 and "temperature_grid: " in result.stderr
