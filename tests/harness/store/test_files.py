"""What is written whole or not at all, and whom its errors name."""

from __future__ import annotations

import errno

import pytest

from specbench.harness.store.files import write_atomically, write_text
from specbench.harness.store.writing import CannotWriteError, writing


def test_an_error_names_the_file_and_not_its_temporary_one(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "folder").mkdir()
    for path, reason in (
        (tmp_path / "nowhere" / "x", "No such file or directory"),
        (file / "x", "Not a directory"),
        (tmp_path / "folder", "Is a directory"),
        (tmp_path / ("x" * 250), "File name too long"),  # its own name is not, the temporary one is
    ):
        with pytest.raises(CannotWriteError) as error, writing("output", path):
            write_text(path, "text")
        assert str(error.value) == f"output: cannot write to {path}: {reason}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_an_error_of_another_file_stays_as_it_is(tmp_path):
    def fill(temporary):
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as error:
        write_atomically(tmp_path / "x", fill)
    assert error.value.filename is None and not list(tmp_path.iterdir())
