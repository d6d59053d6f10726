"""`specbench certify` says which part it is at, of how many, and how long the rest takes."""

from __future__ import annotations

import json

WORDS = (
    "certify -s ngram:k=2 --load-format dummy --model toy --dtype float32 --device cpu --dataset-name random "
    "--num-prompts 2 --output-len 4 --max-model-len 1100 --temperature 0 --temperature 1 --num-seeds 50"
).split()


def test_parts(cli, runs):
    """Two temperatures, each with the texts of three arms; at 1, many seeds of each beside them."""
    result = cli(*WORDS, "--output-dir", runs, "--progress", "json")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    blocks = [line for line in lines if line["event"] == "block"]
    assert [(block["part"], block["num_parts"]) for block in blocks] == [(n, 9) for n in range(1, 10)]
    assert blocks[0]["remaining_s"] is None and all(block["remaining_s"] is not None for block in blocks[1:])
    assert blocks[0]["text"] == "no-spec, temperature 0, part 1 of 9"
    assert ", 50 seeds at temperature 1, part 3 of 9, about " in blocks[2]["text"]
    (run,) = runs.iterdir()
    again = cli("certify", "--run", run, "--progress", "json")
    assert again.exit_code == 0 and '"event": "block"' not in again.stderr, "nothing is left to do"
