"""Commands in processes forked from a warm one end, print and see what is around them as those started anew do."""

from __future__ import annotations

import os
import subprocess

import pytest
from toy import warm


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no words')", 1, "no words\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_how_they_end(tmp_path, code, status, error):
    with open(tmp_path / "err", "w+") as err, open(os.devnull) as nothing:
        streams = (nothing.fileno(), err.fileno(), err.fileno())
        assert warm.asked(warm.server(), code, [], streams) == status
        assert (tmp_path / "err").read_text().endswith(error)


def test_a_program_sees_its_words_its_place_and_its_environment(tmp_path):
    path, folder = tmp_path / "say", tmp_path / "folder"
    folder.mkdir()
    warm.program(path, "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['SAID'], sys.stdin.read())")
    environment = {**os.environ, "SAID": "here"}
    for said in ("one", "two"):
        done = subprocess.run(
            [path, said, "b c"], cwd=folder, env=environment, input=said, capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr) == (f"{[said, 'b c']} {folder} here {said}\n", "")
