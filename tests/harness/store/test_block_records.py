"""blocks.jsonl: what a kill leaves of its last line is dropped; anything else that cannot be read is an error."""

from __future__ import annotations

import pytest

from specbench.harness.store.block_records import BlockRecord, add_record, read_records

FIRST, SECOND = (BlockRecord(arm="a", block=n, position=0, load_average=(0.5, 0.25)) for n in (0, 1))


@pytest.fixture
def file(tmp_path):
    """Of two blocks."""
    for record in (FIRST, SECOND):
        add_record(tmp_path, record)
    return tmp_path / "blocks.jsonl"


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_line_is_left_out_and_then_replaced(file, kept):
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{second[:kept]}")
    assert read_records(file.parent) == {("a", 0): FIRST}
    add_record(file.parent, SECOND)
    assert file.read_text() == f"{first}\n{second}\n"


def test_a_whole_last_line_without_its_end_counts(file):
    file.write_text(file.read_text().rstrip("\n"))
    assert len(read_records(file.parent)) == 2
    add_record(file.parent, SECOND)
    assert read_records(file.parent) == {("a", 0): FIRST, ("a", 1): SECOND} and len(file.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"arm": "a", "blo', "Unterminated string"),
        ("\x00\x00", "Expecting value"),
        ("[]", "Expected `object`, got `array`"),
        ('{"arm": "a", "block": "x", "position": 0}', "block: Expected `int`, got `str`"),
        ("[" * 600 + "]" * 600, "nests more than"),
    ],
)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_other_line_that_cannot_be_read_is_an_error(file, line, reason, number):
    """Also the last one, if it is whole: a kill leaves no end of line."""
    lines = file.read_text().splitlines()
    lines.insert(number - 1, line)
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError) as refused:
        read_records(file.parent)
    said = str(refused.value)
    assert said.startswith(f"{file}:{number}: ") and reason in said and "restore it, or remove this line" in said
