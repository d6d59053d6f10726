"""Steady rounds of SGLang: ranges around its scheduler's calls on stand-ins, and its own profiler started and read."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import toy
from toy.child_orders import request

from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.engines.sglang import mapping

FAKE = Path(toy.__file__).with_name("fake_sglang")
FOLDER = Path(mapping.__file__).parent
CHAIN = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
ROUNDS = """
import contextlib, json, sys
sys.path[:0] = {paths!r}
from ranges import about, put_ranges
import sglang.srt as stand_ins
seen, depth = [], 0
@contextlib.contextmanager
def opened(name):
    global depth
    seen.append("  " * depth + name.removeprefix("specbench:"))
    depth += 1
    yield
    depth -= 1
put_ranges({version!r}, opened)
if {version!r} == "0.5.16":
    worker = stand_ins.EAGLEWorkerV2({has_graphs}) if {drafts} else stand_ins.TpModelWorker()
    for is_extend in (False, not {drafts}):
        stand_ins.Scheduler(worker).run_batch(stand_ins.batch_of(2, is_extend=is_extend))
print(json.dumps([seen, about({version!r})]))
"""


def rounds(version: str = "0.5.16", *, has_graphs: bool = False, drafts: bool = True) -> tuple[list[str], str]:
    """Ranges that are opened, those inside others further in; in a process of its own, as they stay around classes."""
    paths = [str(FAKE), str(FOLDER), str(FOLDER.parent / "child")]
    script = ROUNDS.format(paths=paths, version=version, has_graphs=has_graphs, drafts=drafts)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


LONG = 100_000  # tokens: nothing ends by itself while it is traced, however fast the stand-in is
VERIFY = ["    accept", "      accept", "        verify"]


def test_each_pass_without_graphs_is_a_range():
    seen, about = rounds()
    drafts = ["    draft", "      draft_next", "      draft_next"]
    one = ["  advance", *drafts, *VERIFY, "    draft", "      draft_first"]
    assert seen == ["step 0 bs=2", *one, "step 1 bs=2", *one]
    assert about == "SGLang 0.5.16: ranges around the calls of its scheduler and EAGLE workers, its own are off"


def test_passes_that_one_graph_replays_are_one_range():
    seen, _ = rounds(has_graphs=True)
    one = ["  advance", "    draft", "      draft_rest", *VERIFY, "    draft", "      draft_first"]
    assert seen == ["step 0 bs=2", *one, "step 1 bs=2", *one]


def test_rounds_without_a_drafter_and_with_prompts():
    seen, _ = rounds(drafts=False)
    target = ["    accept", "      verify"]
    assert seen == ["step 0 bs=2", "  advance", *target, "step 1 bs=2", "  prefill", *target]


def test_of_a_version_that_was_not_read_nothing_is_touched():
    assert rounds("0.5.17") == ([], "SGLang 0.5.17: no ranges; the calls of a round are known for 0.5.16 only")


@pytest.fixture
def child():
    command = [sys.executable, str(FOLDER / "child.py")]
    environment = {"PYTHONPATH": str(FAKE), "SPECBENCH_TRACED": "torch"}
    with ChildProcess(command, environment, Path(tempfile.mkdtemp()) / "log") as process:
        process.ask({"do": "open", "engine": {"model_path": "m", "disable_radix_cache": True, **CHAIN}}, "opened")
        yield process


def asked(child: ChildProcess, path: Path | None, max_tokens: int) -> dict:
    requests = [request(n, 5 + n, 6, max_tokens=max_tokens) for n in range(2)]
    tool = "none" if path is None else "torch"
    told = {"do": "trace", "requests": requests, "num_rounds": 4, "tool": tool, "path": path and str(path)}
    return child.ask(told, "traced")


def test_its_own_profiler_traces_as_many_rounds(child, tmp_path):
    path = tmp_path / "trace.json.gz"
    told = asked(child, path, LONG)
    assert len(told["round_ns"]) == len(told["unprofiled_ns"]) == 4 and min(told["round_ns"]) > 0
    assert path.stat().st_size > 10 and "its own are off" in told["notes"][0]
    assert len(asked(child, None, LONG)["round_ns"]) == 4  # as good as before


def test_requests_that_end_too_early_are_seen(child, tmp_path):
    with pytest.raises(ValueError, match="rounds: 4 is not allowed; the batch was not steady for so long"):
        asked(child, tmp_path / "trace.json.gz", 30)
