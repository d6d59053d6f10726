"""Paths that cannot be read or written: one error that names the option."""

from __future__ import annotations

from pathlib import Path

import pytest
import tool_files

from specbench.harness.experiments.imports.write import import_files


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("report RUN -o FILE/x", "output: cannot write to FILE/x: Not a directory"),
        ("history add FILE/x RUN", "history: cannot write to FILE/x: Not a directory"),
        ("import RESULT -o FILE/x", "output_dir: cannot write to FILE/x: Not a directory"),
        ("gate RUN --policy POLICY --junit FILE/x", "junit: cannot write to FILE/x: FILE is not a directory\n"),
        ("gate RUN --policy POLICY --junit EMPTY", "junit: cannot write to EMPTY: Is a directory"),
        ("gate RUN --policy POLICY --comment FILE/x", "comment: cannot write to FILE/x: FILE is not a directory\n"),
        ("gate RUN --policy POLICY --comment EMPTY", "comment: cannot write to EMPTY: Is a directory"),
        ("show RUN --card FILE/x.png", "card: cannot write to FILE/x.png: FILE is not a directory\n"),
        ("show RUN --write", "write: cannot write to RUN: Is a directory (RUN/report.md)"),
        ("import FILE/x", "files: cannot open FILE/x: Not a directory"),
        ("import nothere", "files: cannot open nothere: No such file or directory"),
        ("report RUN -o site --title t\udcff", r"title: 't\udcff' is not UTF-8; allowed: text in UTF-8"),
        ("report FILE -o site", "runs: none of those given can be read (FILE: is not a directory"),
        ("report nothere -o site", "(nothere: there is no such directory)"),
        ("history show FILE", "history: FILE is not a directory"),
        ("history show nothere", "history: nothere does not exist"),
        ("history show EMPTY", "history: EMPTY holds no runs"),
        ("history suspects EMPTY", "history: EMPTY holds no runs"),
    ],
)
def test_paths_that_do_not_fit_are_named_with_their_option(cli, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("")
    Path("EMPTY").mkdir()
    result = tool_files.write(Path("RESULT"), tool_files.vllm_bench(tool_files.served()))
    Path("POLICY").write_text("[gate.tps]\n")
    if "RUN" in words.split():
        import_files([result], tmp_path, ["specbench"]).rename("RUN")
        Path("RUN/report.md").mkdir()
    done = cli(*words.split())
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("error: ") == 1, done.stderr
