"""The line of a log that goes into a message."""

from __future__ import annotations

import pytest

from specbench.harness.engines.process.log_tail import LONGEST, last_lines, telling_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("start\nValueError: no such head\nshutting down\n", "ValueError: no such head"),
        ("\x1b[31mERROR\x1b[0m 12: port in use\r\nbye", "ERROR 12: port in use"),
        ("loading 1%\rloading 99%\rloading 100%", "loading 100%"),
        ("a Value error, no drafts\n  see https://errors.example/error/1", "a Value error, no drafts"),
        ("an error of long ago\n" + "line\n" * 30, "line"),
        ("x" * 500, "x" * (LONGEST - 3) + "..."),
    ],
)
def test_the_telling_line(tmp_path, text, line):
    log = tmp_path / "log"
    log.write_text(text, newline="")
    assert telling_line(log) == line


def test_the_end_of_a_long_log(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {n}\n" for n in range(100_000)))
    assert last_lines(log) == [f"line {n}" for n in range(99_980, 100_000)]
    assert last_lines(tmp_path / "none") == []
