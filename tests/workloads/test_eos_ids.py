"""Which ids end a generation, by the files of a model."""

from __future__ import annotations

import json

import pytest

from specbench.workloads.tokenizer import read_eos_ids


def test_generation_config_comes_before_config_and_the_tokenizer(tmp_path):
    assert read_eos_ids(tmp_path, None) == () and read_eos_ids(tmp_path, 7) == (7,)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    assert read_eos_ids(tmp_path, 7) == (2,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 2]}))
    assert read_eos_ids(tmp_path, 7) == (4, 2)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": None}))
    assert read_eos_ids(tmp_path, 7) == (2,)


@pytest.mark.parametrize("value", [{"a": 1}, "2", [[2]], [1, "2"], True, -1, 2.5, [None]])
def test_what_is_no_id_is_refused_by_file_and_value(tmp_path, value):
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(ValueError, match=r"generation_config.json: eos_token_id .* allowed: a token id"):
        read_eos_ids(tmp_path, None)


@pytest.mark.parametrize("text", ["[]", "5", "[" * 100_000, '{"eos_token_id": ' + "9" * 5000 + "}", "\udcff"])
def test_a_file_that_is_no_object_is_refused_by_name(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match="config.json: (not valid JSON|expected a JSON object|is not UTF-8 text)"):
        read_eos_ids(tmp_path, None)
