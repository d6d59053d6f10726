"""Text folded to a width: nothing is lost, figures keep their intervals, commands stay commands."""

from __future__ import annotations

import shlex

import pytest

from specbench.reports.fold import folded, folded_command, least_width

LABEL = "eagle:k=4,head=random,graph=piecewise,drafter=unpadded (synthetic)"
COMMAND = "specbench ab -A '--state-update torch' -s eagle:k=4,head=random --label 'it'\"'\"'s' -q"


@pytest.mark.parametrize("width", [8, 12, 20, 200])
@pytest.mark.parametrize("text", [LABEL, "one two  three", "", "x" * 50, "-22.5% [-25.7%, -19.2%] or so"])
def test_no_line_is_longer_and_nothing_is_lost(text, width):
    lines = folded(text, width)
    assert max(map(len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_where_it_breaks():
    assert folded("TPOT -22.5% [-25.7%, -19.2%]; equal", 25) == ["TPOT", "-22.5% [-25.7%, -19.2%];", "equal"]
    assert folded(LABEL, 24) == ["eagle:k=4,head=random,", "graph=piecewise,drafter=", "unpadded (synthetic)"]
    assert folded("* a note that is long", 12, "  ") == ["* a note", "  that is", "  long"]


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_folded_command_is_the_same_command(width):
    lines = folded_command(COMMAND, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(COMMAND)  # as a shell joins lines
    assert all(len(line) <= max(width, 40) for line in lines) and (width < 200) == (len(lines) > 1)


def test_the_narrowest_column_of_a_text():
    assert [least_width(text) for text in ("", "8/8", "1.14x [1.09, 1.19]", "beyond 256 (100% of resamples)")] == [
        0,
        3,
        18,
        16,
    ]
    assert least_width("inconclusive: needs about 134 more blocks") == 24
