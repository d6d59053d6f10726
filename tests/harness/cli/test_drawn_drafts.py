"""A run with drawn drafts: its pages say why outputs differ."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from specbench.harness.cli.main import app

ARM = "draft-model:draft=self:1,k=2,draft_sample_method=probabilistic"
REASON = "below 100%: drawn drafts use different random numbers and are equally valid"


@pytest.mark.parametrize("temperature", [0, 1])
def test_pages_say_why_sampled_outputs_differ(tmp_path, temperature):
    words = "run -s no-spec --load-format dummy --model toy --dtype float32 --dataset-name random -q "
    words += "--random-input-len 12 --random-output-len 8 --num-prompts 2 --num-repeats 1 --warmup-max-s 0.02 "
    words += f"--max-model-len 64 --temperature {temperature} --output-dir {tmp_path} -s {ARM}"
    result = CliRunner().invoke(app, words.split(), prog_name="specbench")
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.iterdir()
    report = (path / "report.md").read_text()
    assert "drawn drafts (sampled tokens are no-spec's in distribution only)" in report
    assert (REASON in report) == (temperature > 0)
