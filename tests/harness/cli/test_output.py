"""What goes to stdout, to stderr and into the record."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console
from toy.clock import Clock

from specbench.harness.cli import json_progress as json_module
from specbench.harness.cli import progress as progress_module
from specbench.harness.cli.json_progress import JsonProgress
from specbench.harness.cli.progress import RunProgress
from specbench.harness.run.machine_watch import Watcher
from specbench.harness.run.progress import Place
from specbench.harness.store.rows import RequestRow
from specbench.workloads.assets.resolve import AssetError

ARMS = ("-s", "no-spec", "-s", "ngram:k=2")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7])[;m]")


def test_table_on_stdout_and_lines_on_stderr(cli, toy, only_run, clock):
    result = cli(*toy, *ARMS)
    assert result.exit_code == 0, result.output
    answer, header = result.stdout.splitlines()[:2]
    assert "ngram:k=2 (synthetic) is " in answer and header.startswith("strategy")
    assert re.search(r"^ngram:k=2 .*\d\.\d\dx", result.stdout, re.M)
    assert result.stdout.rstrip().endswith(f"run directory: {only_run().path}")
    lines = result.stderr.splitlines()
    assert all(line.startswith("specbench: ") for line in lines) and "\x1b" not in result.stderr
    assert "specbench: no-spec, arm 1 of 2: repeat 1 of 1, 3 requests" in lines
    assert "specbench: ngram:k=2: warming up" in lines


def test_a_busy_machine_is_told_before_anything_is_measured(cli, toy, monkeypatch):
    monkeypatch.setattr(Watcher, "busy_now", lambda watcher: ("load 9.1 on 2 cores",))
    lines = cli(*toy, *ARMS).stderr.splitlines()
    (place,) = [n for n, line in enumerate(lines) if "the machine is busy (load 9.1 on 2 cores)" in line]
    assert place < next(n for n, line in enumerate(lines) if "warming up" in line)


def test_json_is_all_of_stdout(cli, toy):
    result = cli(*toy, *ARMS, "--format", "json")
    assert [arm["label"] for arm in json.loads(result.stdout)["arms"]] == ["no-spec", "ngram:k=2"]
    assert "specbench: " in result.stderr


@pytest.mark.parametrize("name", ["sharegpt", "sharegpt-held-out"])
def test_a_data_set_is_fetched_where_progress_is_shown(cli, chat_model, runs, monkeypatch, name):
    def no_network(asset: str, progress=None):
        progress(asset, 30_000_000, 120_000_000)
        raise AssetError("no network")

    monkeypatch.setattr("specbench.harness.run.workload.resolve", no_network)
    result = cli("run", "--model", chat_model, "--max-model-len", 64, "--dataset-name", name, "--output-dir", runs)
    assert result.exit_code == 2 and "error: no network" in result.stderr
    assert "specbench: fetching sharegpt: 25% of 120 MB" in result.stderr


def test_quiet_silences_stderr_but_not_errors(cli, toy):
    assert cli(*toy, "-s", "no-spec", "--quiet").stderr == ""
    refused = cli(*toy, "-s", "nospec", "--quiet")
    assert refused.exit_code == 2 and "is not known" in refused.stderr


def test_reports_are_written(cli, toy, only_run):
    cli(*toy, *ARMS)
    folder = only_run().path
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"run.json", "requests.parquet", "steps.parquet", "report.md", "report.json"} <= names
    assert any(name.endswith(".png") for name in names)
    assert cli("show", folder, "--format", "json").stdout == (folder / "report.json").read_text()


def test_the_command_is_recorded_without_the_path_of_the_program(cli, toy, only_run, monkeypatch):
    words = [*toy, "-s", "no-spec"]
    monkeypatch.setattr("sys.argv", ["/somewhere/else/bin/specbench", *words])
    cli(*words)
    assert only_run().record.argv == ("specbench", *words)


def test_everything_that_was_resolved_is_recorded(cli, toy, only_run):
    cli(*toy, "-s", "eagle:k=3,head=random", "--acceptance", "synthetic:2.5", "--seed", 7)
    record = only_run().record
    (arm,) = record.arms
    assert arm.config.acceptance == "synthetic:2.5" and arm.config.num_drafts == 3
    assert record.config.seed == record.config.workload.seed == 7
    assert {"synthetic acceptance (2.5)", "synthetic weights"} <= set(arm.notes)


@pytest.mark.parametrize("no_color", [True, False])
def test_bars_on_a_terminal(no_color, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    if not no_color:
        monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = io.StringIO()
    with RunProgress(False, Console(file=terminal, force_terminal=True, width=100)) as progress:
        progress.asset("sharegpt", 30_000_000, 120_000_000)
        progress.start_block("eagle:k=3[/x], arm 1 of 2: repeat 1 of 1", 2)
        done = RequestRow(0, "p", 1, 3, "length", 0, 1, 2)
        progress.request_done(done)
        progress.request_done(done)
    text = terminal.getvalue()
    assert "eagle:k=3[/x], arm 1 of 2: repeat 1 of 1" in text and "30 of 120 MB" in text
    assert re.search(r"2 of 2 requests, [\d,]+ TPS", text)
    assert bool(COLOUR.search(text)) != no_color


def test_lines_without_a_terminal(monkeypatch):
    file = io.StringIO()
    with RunProgress(False, Console(file=file, width=20)) as progress:
        for done in range(0, 101, 10):
            progress.asset("sharegpt", done * 1_000_000, 100_000_000)
        progress.start_block("a label that is longer than the line", 5)
    assert file.getvalue().splitlines() == [
        *(f"specbench: fetching sharegpt: {percent}% of 100 MB" for percent in (0, 25, 50, 75, 100)),
        "specbench: a label that is longer than the line, 5 requests",
    ]


def test_a_long_block_has_a_line_every_so_often_without_a_terminal(monkeypatch):
    file, now = io.StringIO(), [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    with RunProgress(False, Console(file=file, width=80)) as progress:
        progress.start_block("ngram, arm 1 of 1: repeat 1 of 1", 5)
        for _ in range(5):
            now[0] += 10.0
            progress.request_done(RequestRow(0, "p", 1, 30, "length", 0, 1, 2))
    assert file.getvalue().splitlines() == [
        "specbench: ngram, arm 1 of 1: repeat 1 of 1, 5 requests",
        "specbench: 2 of 5 requests, 3 TPS, about 30 s left for the others",
        "specbench: 4 of 5 requests, 3 TPS, about 10 s left for the others",
    ]


def test_quiet_says_nothing(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    terminal = io.StringIO()
    with RunProgress(True, Console(file=terminal, force_terminal=True)) as progress:
        progress.say("something")
        progress.asset("sharegpt", 1, 2)
        progress.start_block("ngram", 1)
    assert terminal.getvalue() == ""


def test_progress_as_lines_of_json(cli, toy, clock):
    result = cli(*toy, *ARMS, "--num-repeats", 2, "--progress", "json")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert {line["command"] for line in lines} == {"run"} and lines[0]["event"] == "message"
    ended = [line for line in lines if line["event"] == "requests" and line["requests_done"] == line["num_requests"]]
    where = [tuple(line[key] for key in ("label", "arm", "num_arms", "repeat", "num_repeats")) for line in ended]
    assert where == [
        ("no-spec", 1, 2, 1, 2),
        ("ngram:k=2", 2, 2, 1, 2),
        ("ngram:k=2", 2, 2, 2, 2),
        ("no-spec", 1, 2, 2, 2),
    ]
    assert all(line["requests_done"] == 3 and line["tokens_per_s"] > 0 for line in ended)
    assert ended[0]["remaining_s"] is None and ended[-1]["remaining_s"] >= 0
    assert [line["elapsed_s"] for line in lines] == sorted(line["elapsed_s"] for line in lines)


def test_of_a_sweep_the_remaining_time_is_that_of_all_points(monkeypatch):
    clock, stream = Clock(tick_ns=0), io.StringIO()
    monkeypatch.setattr(json_module, "time", clock)
    with JsonProgress("sweep", stream) as progress:
        progress.at(Place("", {"point": (2, 3)}, remaining_s=500.0))
        progress.at(Place("ngram", {"arm": (1, 2), "repeat": (1, 1)}, remaining_s=5.0))
        clock.sleep(3.0)
        progress.start_block("ngram", 4)
    block = json.loads(stream.getvalue().splitlines()[-1])
    assert block["remaining_s"] == 497 and block["num_requests"] == 4
    assert (block["point"], block["num_points"], block["arm"], block["label"]) == (2, 3, 1, "ngram")


@pytest.mark.parametrize(("words", "is_silent"), [(("--progress", "none"), True), (("--progress", "lines"), False)])
def test_progress_in_lines_or_not_at_all(cli, toy, words, is_silent):
    assert (cli(*toy, "-s", "no-spec", *words).stderr == "") == is_silent


def test_what_works_here_is_printed_as_other_tables_are(cli):
    """Titles, headers underlined, a line per row."""
    lines = cli("list").stdout.splitlines()
    assert lines[0] in ("device: cpu", "device: cuda")
    at = lines.index("graph plans (graph=PLAN; graph_PART=MODE replaces one part)")
    assert lines[at + 1].split()[0] == "plan" and set(lines[at + 2]) == {"-", " "}
    assert any(line.startswith("modes of a part") and "piecewise, " in line for line in lines[at:])
