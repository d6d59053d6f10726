"""blocks.jsonl: what a kill leaves of its last line is dropped; anything else that cannot be read is an error."""

from __future__ import annotations

import pytest

from specbench.harness.store import block_records
from specbench.harness.store.block_records import BlockRecord, add_record, read_records

MEND = "restore it from a copy, or remove it and measure its block again"
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


def test_a_torn_last_line_of_no_text_is_left_out_and_then_replaced(file):
    first, second = file.read_bytes().splitlines()
    file.write_bytes(first + b"\n" + second[:40] + b"\xc3")
    assert read_records(file.parent) == {("a", 0): FIRST}
    add_record(file.parent, SECOND)
    assert file.read_bytes() == first + b"\n" + second + b"\n"


def test_what_a_writer_adds_meanwhile_makes_no_line_unreadable(file, monkeypatch):
    """The file is read once: half a line does not become a whole one while its end is looked for."""
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{second[:30]}")

    def read_before_the_end_is_written(path):
        content = path.read_bytes()
        path.write_text(f"{first}\n{second}\n")
        return content

    monkeypatch.setattr(block_records, "read_bytes", read_before_the_end_is_written)
    assert read_records(file.parent) == {("a", 0): FIRST}


def test_a_torn_line_whose_block_was_measured_again_is_left_out(file):
    """Earlier versions ended a torn line, and wrote the next one after it."""
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{second[:40]}\n{first}\n{second}\n")
    assert read_records(file.parent) == {("a", 0): FIRST, ("a", 1): SECOND}


@pytest.mark.parametrize("after", ["first", "torn", "nothing"])
@pytest.mark.parametrize("kept", [20, 40])
def test_a_torn_line_whose_block_has_no_later_record_is_an_error(file, kept, after):
    """Its block may count although a lost reason says that it must not."""
    first, second = file.read_text().splitlines()
    rest = {"first": f"{first}\n", "torn": f"{second[:40]}\n{first}\n", "nothing": ""}[after]
    file.write_text(f"{second}\n{second[:kept]}\n{rest}")
    with pytest.raises(ValueError, match=rf"^{file}:2: .*; {MEND}$"):
        read_records(file.parent)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("\udcff", "can't decode byte 0xff"),
        ('{"arm": "a", "position": 0}', "missing required field `block`"),
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
    file.write_text("\n".join(lines) + "\n", errors="surrogateescape")
    with pytest.raises(ValueError) as refused:
        read_records(file.parent)
    said = str(refused.value)
    assert said.startswith(f"{file}:{number}: ") and reason in said and said.endswith(f"; {MEND}")
    assert said.count("restore it") == 1 and said.count(str(file)) == 1
