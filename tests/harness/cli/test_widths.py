"""Every table in a terminal of 80 and of 120 columns: no line is longer, and no header or name is cut."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from ab_samples import experiment
from compare_samples import Machine, make_run
from rich.console import Console
from run_samples import begun
from site_samples import add_certificate, add_scores, add_trace, finished_run
from sweep_samples import stored_sweep
from tool_files import served, vllm_bench, write

from specbench.harness.store.run_directory import RunDirectory
from specbench.reports import terminal
from specbench.reports.document import Table

NARROW, WIDE, NAME = 80, 120, 25
SCREEN = 23  # lines of a screen of 24 above the next prompt
BENCHMARKS = Path(__file__).parents[3] / "benchmarks/runs"
AB_RUNS = ["cpu/20261121T125831Z-fused-a015b9ba", "cpu/20261121T130436Z-k2k4quiet-3362e86c"]
AB_RUNS += ["cpu/20261121T125831Z-fused-a015b9ba", "h200/20261121T111839Z-k2k4-f5cda786"]
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
COMMANDS = {
    "show a run": "show {main}",
    "show an A/B": f"show {BENCHMARKS / AB_RUNS[3]}",
    "show an A/B wide": "show {ab} --format wide",
    "show an A/A": "show {aa}",
    "show a sweep": "show {sweep}",
    "show a certificate": "show {certified}",
    "show scores": "show {scored}",
    "compare": "compare {main} {change}",
    "compare three": "compare {main} {change} {third}",
    "compare wide": "compare {main} {change} --format wide",
    "gate": "gate {change} --policy {policy} --against {main}",
    "history": "history show {history} --metric tpot_ms",
    "suspects": "history suspects {history}",
    "import": "import {plain} {eagle} --output-dir {imported} --meta hardware=x",
    "profile": "profile show {traced}",
    "list": "list",
    "env": "env",
    "help": "--help",
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stored")
    made = {
        "main": make_run(folder, Machine(num_repeats=6), "main"),
        "change": make_run(folder, Machine(noise_seed=3, step_factor=1.05, num_repeats=6, sha="b" * 40), "change"),
        "third": make_run(folder, Machine(noise_seed=4, sha="c" * 40), "a-third-one-with-a-long-label"),
        "ab": experiment(folder, change=-0.2, in_process=True).path,
        "aa": experiment(folder, is_aa=True).path,
        "sweep": stored_sweep(folder).path,
        "certified": RunDirectory.create(folder, "certify", begun("no-spec", "eagle:k=4")).path,
        "scored": finished_run(folder / "scored", started="2026-01-01T00:00:00Z"),
        "traced": finished_run(folder / "traced", started="2026-01-01T00:00:00Z"),
        "policy": folder / "policy.toml",
        "history": folder / "history",
        "imported": folder / "imported",
    }
    add_certificate(made["certified"], ok=False)
    add_scores(made["scored"])
    add_trace(made["traced"])
    made["policy"].write_text('[gate.same_output]\nmin = "100%"\n[gate.tpot_ms]\nmin_effect = "2%"\n')
    for name, num_drafts in (("plain", 0), ("eagle", 3)):
        made[name] = write(folder / f"{name}.json", vllm_bench(served(8, num_drafts=num_drafts)))
    return made


def shown(cli, monkeypatch, width: int, *words: object) -> str:
    """What a terminal of `width` columns shows."""
    monkeypatch.setattr("sys.argv", ["specbench", *map(str, words)])
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = cli(*words)
    assert result.exit_code in (0, 1, 4), result.output  # 4: a gate without a verdict
    return _STYLE.sub("", result.stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_and_no_header_or_name_is_cut(cli, stored, monkeypatch, name):
    tables: list[Table] = []
    draw = terminal.rich_result

    def drawn(table: Table, width: int):
        tables.append(table)
        return draw(table, width)

    monkeypatch.setattr(terminal, "rich_result", drawn)
    if name in ("history", "suspects"):
        cli("history", "add", stored["history"], stored["main"], stored["change"])
    text = shown(cli, monkeypatch, NARROW, *COMMANDS[name].format_map(stored).split())
    check(text, tables, NARROW)
    for table in tables:
        console = Console(width=WIDE, force_terminal=True, record=True, file=io.StringIO())
        console.print(draw(table, WIDE))
        check(console.export_text(), [table], WIDE)


def check(text: str, tables: list[Table], width: int) -> None:
    lines = [line.rstrip() for line in text.splitlines()]
    paths = ("run directory: ", "sweep directory: ", "all of it: ", "    /")  # to be copied whole
    assert [line for line in lines if len(line) > width and not line.startswith(paths)] == []
    words = {one for word in text.split() for one in (word, word.rstrip(","))}  # columns left out stand in a list
    for table in tables:
        assert {word for header in table.headers for word in header.split()} <= words, "a header is cut"
        names = [str(row[0]) for row in table.rows if len(str(row[0])) <= NAME]
        assert [name for name in names if not any(line.startswith(name) for line in lines)] == [], "names are cut"


def test_runs_of_seven_arms_are_compared_on_one_screen(cli, monkeypatch, tmp_path):
    arms = ("no-spec", "naive-eagle", *(f"eagle:k={k}" for k in (1, 2, 4)), "ngram:k=4,min_n=2", "draft-model:k=4")
    runs = [make_run(tmp_path, Machine(noise_seed=n), f"run-{n}", arms=arms) for n in range(2)]
    lines = shown(cli, monkeypatch, NARROW, "compare", *runs).splitlines()
    assert lines[0].startswith("TPOT of 7 arms: ") and len(lines) <= SCREEN + 3, "\n".join(lines)
    assert [line.split()[0] for line in lines[5:12]] == list(arms)


@pytest.mark.parametrize("run", AB_RUNS)
def test_a_stored_experiment_answers_on_one_screen(cli, monkeypatch, run):
    """Is it faster, by how much, is it still right, and how is it repeated."""
    text = shown(cli, monkeypatch, NARROW, "show", BENCHMARKS / run)
    lines = text.splitlines()
    assert len(lines) <= SCREEN
    answer = " ".join(lines[:3])
    assert re.search(r"B is (faster|slower) than A|It is unclear which side is faster", answer)
    assert re.search(r"TPOT [-+][\d.]+% \[[-+]", answer) and re.search(
        r"\d+ of \d+ outputs equal|outputs not judged", answer
    )
    command = text[text.index("specbench ab ") : text.index("\nall of it")].replace(" \\\n   ", "")
    assert command == RunDirectory.open(BENCHMARKS / run).record.command


def test_unequal_outputs_of_forced_acceptance_are_not_judged_and_equal_ones_are(cli):
    unequal, equal = "h200/20261121T111839Z-k2k4-f5cda786", "h200/20261121T112508Z-fusedgraph-351174ef"
    assert "; outputs not judged (forced acceptance)." in cli("show", BENCHMARKS / unequal).stdout
    assert "; 160 of 160 outputs equal." in cli("show", BENCHMARKS / equal).stdout
