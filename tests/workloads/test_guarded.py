"""Files of somebody else's: every reader refuses what is no file, too large, too deep or no text, in one line."""

from __future__ import annotations

import ast
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from specbench.harness.experiments.imports.formats import read_results
from specbench.harness.judge.lm_eval_samples import read_samples
from specbench.harness.judge.policy import read_policy
from specbench.harness.metrics.accuracy import read_accuracy
from specbench.harness.profiling.chrome_json import ChromeTrace
from specbench.harness.profiling.node_map import read_node_maps
from specbench.harness.profiling.profile_file import read_profile
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.profiling.trace_db import trace_kind
from specbench.harness.spec.recipe_files import read_toml
from specbench.harness.store.codec import read_object
from specbench.harness.store.journal import read_journal
from specbench.harness.store.run_directory import RunDirectory
from specbench.workloads import guarded
from specbench.workloads.assets.weight_files import safetensors_files
from specbench.workloads.records import read_records
from specbench.workloads.sharegpt_file import iter_conversations
from specbench.workloads.tokenizer import read_eos_ids

ROOT = Path(__file__).resolve().parents[2]
DEEP = "[" * 100_000
DEEP_AND_WHOLE = "[" * 500 + "]" * 500  # no recursion error: only the limit refuses it


def _eos(path: Path) -> object:
    return read_eos_ids(path.parent, None)


def _weights(path: Path) -> object:
    return safetensors_files(path.parent)


# By the name of a file, what reads it in the harness.
READERS: dict[str, Callable[[Path], object]] = {
    "run.json": RunDirectory.open,
    "profile.json": read_profile,
    "certificate.json": read_object,
    "nodes.json": read_node_maps,
    "vllm.json": read_results,
    "samples.jsonl": read_samples,
    "prompts.jsonl": lambda path: list(read_records(path)),
    "prompts.json": lambda path: list(read_records(path)),
    "sharegpt.json": lambda path: list(iter_conversations(path)),
    "trace.json": lambda path: list(ChromeTrace(path, path.name)),
    "policy.toml": read_policy,
    "recipe.toml": lambda path: read_toml(path, "recipe"),
    "rules.toml": lambda path: PhaseRules.shipped().with_file(path),
    "config.json": _eos,
    "model.safetensors.index.json": _weights,
}

IN_A_FOLDER = ("run.json", "config.json", "model.safetensors.index.json")  # where a pipe does not count as a file


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "text", [DEEP, f'{{"traceEvents": {DEEP}', DEEP_AND_WHOLE, f"a = {DEEP}", f"a = {DEEP_AND_WHOLE}"]
)
def test_what_nests_too_deep_is_refused(tmp_path, name, text):
    if name == "trace.json" and text == DEEP_AND_WHOLE:
        text = "[" * 5000 + "]" * 5000  # its events are left in their text, so that only the decoder's limit counts
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name) as refused:
        READERS[name](tmp_path / name)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("name", [name for name in READERS if name not in IN_A_FOLDER])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="is a device, a pipe or a socket; allowed: a file"):
        READERS[name](tmp_path / name)


def test_a_device_and_a_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^/dev/zero: is a device, a pipe or a socket; allowed: a file"):
        guarded.read_text(Path("/dev/zero"))
    with pytest.raises(ValueError, match="is a folder; allowed: a file"):
        guarded.read_json(tmp_path)
    with pytest.raises(ValueError, match="is a device"):
        trace_kind(Path("/dev/zero"))


def test_a_packed_file_that_unpacks_to_too_much_is_refused_early(tmp_path, monkeypatch):
    monkeypatch.setattr(guarded, "SMALL_BYTES", 1 << 20)
    for name, read in (("trace.json", READERS["trace.json"]), ("p.jsonl.gz", lambda p: list(read_records(p)))):
        (tmp_path / name).write_bytes(gzip.compress(b"[" + b" " * (64 << 20)))
        with pytest.raises(ValueError, match="unpacks to more than [0-9,]+ bytes, the most that is read"):
            read(tmp_path / name)


def test_packed_files_within_the_limit_are_read(tmp_path):
    (tmp_path / "a.json").write_bytes(gzip.compress(json.dumps({"a": [1] * 100_000}).encode()))
    assert len(guarded.read_json_object(tmp_path / "a.json")["a"]) == 100_000


def test_size_and_length_of_a_line_have_limits(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("[1, 2, 3]")
    with pytest.raises(ValueError, match=r"a\.json: has 9 bytes; at most 8 are read"):
        guarded.read_bytes(tmp_path / "a.json", limit=8)
    monkeypatch.setattr(guarded, "MAX_LINE_BYTES", 4)
    with pytest.raises(ValueError, match=r"a\.json:1: the line has more than 4 bytes"):
        list(guarded.numbered_lines(tmp_path / "a.json"))


@pytest.mark.parametrize("text", [r'"\ud800"', r'{"a": ["\uDFFFx"]}', r'{"\udc00": 1}'])
def test_half_a_surrogate_pair_is_refused(text):
    with pytest.raises(ValueError, match=r"holds '\\ud[0-9a-f]{3}', half of a surrogate pair"):
        guarded.parse_json(text)
    assert guarded.parse_json(r'["\ud83d\ude00", "\\ud800"]') == ["\U0001f600", "\\ud800"]


def test_half_a_pair_in_a_prompt_is_named_with_its_line(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n{"prompt": "\\ud800"}\n')
    with pytest.raises(ValueError, match=r"p\.jsonl:2: holds '\\ud800', half"):
        list(read_records(tmp_path / "p.jsonl"))


def test_depth_counts_up_to_the_limit():
    inside = "[" * guarded.MAX_DEPTH + "]" * guarded.MAX_DEPTH
    assert guarded.parse_json(inside) and guarded.parse_toml(f"a = {inside[1:-1]}")
    with pytest.raises(ValueError, match="nests more than 100 deep"):
        guarded.parse_json(f"[{inside}]")


@pytest.mark.parametrize("name", ["requests.parquet", "accuracy.parquet", "prompts.parquet"])
def test_a_large_or_damaged_table_is_refused(tmp_path, monkeypatch, name):
    path = tmp_path / name
    read = read_accuracy if name == "accuracy.parquet" else guarded.read_parquet
    given = tmp_path if name == "accuracy.parquet" else path
    parquet.write_table(pyarrow.table({"a": [0] * 1000}), path)
    with monkeypatch.context() as patch:
        patch.setattr(guarded, "MAX_CELLS", 999)
        with pytest.raises(ValueError, match=rf"{name}: has 1,000 rows of 1 columns"):
            read(given)
    whole = path.read_bytes()
    for damaged in (b"", b"PAR1", whole[:-9] + b"\xff" + whole[-8:], whole[:8] + b"\xff" * 60 + whole[68:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name}: .*not a readable parquet file"):
            read(given)


@pytest.mark.parametrize("lines", ["[]", '{"arm": "a"}', '{"arm": "a", "repeat": "x", "num_requests": 1}', DEEP])
def test_a_journal_of_another_shape_counts_as_cut_off(tmp_path, lines):
    (tmp_path / "a.jsonl").write_text(lines + "\n")
    assert read_journal(tmp_path / "a.jsonl") is None


def test_rows_of_another_shape_end_a_journal(tmp_path):
    head = '{"arm": "a", "repeat": 0, "num_requests": 2}\n'
    row = '[0, "p", 1, 1, "stop", 1, 2, 3]'
    for bad in ("[]", '{"requests": [["x"]]}', '{"requests": 5}', '{"other": []}', '{"requests": [5]}'):
        (tmp_path / "a.jsonl").write_text(f'{head}{{"requests": [{row}]}}\n{bad}\n')
        block = read_journal(tmp_path / "a.jsonl")
        assert block is not None and [row.prompt_id for row in block.requests] == ["p"], bad


# -- no other way in --------------------------------------------------------------------------------------------------

_OPENERS = {
    *("gzip.open", "gzip.decompress", "tomllib.loads", "tomllib.load", "pd.read_parquet", "pq.read_table"),
    *("parquet.read_table", "pq.read_schema", "json.load"),
}
_OWN_FILES = {"workloads/guarded.py", "harness/profiling/redact.py"}  # redact writes with gzip.open
_OWN_JSON = {
    "harness/profiling/job.py",  # which this program has just written itself
    "workloads/assets/shipped_heads.py",  # comes with the package
    "workloads/json_values.py",
}


def test_nothing_else_reads_files_of_others():
    found = []
    folders = [f"harness/{name}" for name in ("experiments", "judge", "metrics", "profiling", "spec", "store")]
    folders += ["harness/engines/openai", "reports", "workloads"]
    for path in (p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if (call in _OPENERS and name not in _OWN_FILES) or (
                call == "json.loads" and name not in _OWN_JSON | _OWN_FILES
            ):
                found.append(f"{name}:{node.lineno} {call}")
    assert found == []
