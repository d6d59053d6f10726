"""The fuzzers themselves: what they must find is found, and what they try differs."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from fuzz.contained import Broken, Hang, Watch, in_time
from fuzz.mutate import mutate_json, mutate_toml
from fuzz.targets import Reader, Target, Trial


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


def trial_of(read, folder: Path, watch: Watch) -> Trial:
    target = Target(prepare=lambda _: Reader(file=folder / "input", seeds=[], read=read), mutate=mutate_json)
    return Trial(target, folder, watch)


def escape(path: Path):
    def read() -> None:
        path.write_text("x")

    return read


def test_a_fault_is_seen(watch, tmp_path):
    """Each of what the table must find, once."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    trial_of(escape(inside / "x"), inside, watch)(b"")
    with pytest.raises(Broken, match="outside"):
        trial_of(escape(outside), inside, watch)(b"")
    with pytest.raises(Broken, match="mkdir"):
        trial_of(outside.with_name("folder").mkdir, inside, watch)(b"")
    with pytest.raises(Broken, match=r"os\.system"):
        trial_of(lambda: os.system("true"), inside, watch)(b"")
    for error in (KeyError("a"), RecursionError(), OSError("no number")):

        def fail(error=error) -> None:
            raise error

        with pytest.raises(type(error)):
            trial_of(fail, inside, watch)(b"")
    with pytest.raises(Hang), in_time(0.05):
        while True:
            pass


def test_changed_inputs_keep_their_form_and_differ():
    seed = b'{"a": [1, {"b": "c"}]}'
    assert len({mutate_json(seed, Random(n)) for n in range(100)}) > 50
    assert len({mutate_toml(b'a = 1\n[t]\nb = "c"\n', Random(n)) for n in range(100)}) > 50
    assert any(b"[[[[" in mutate_json(seed, Random(n)) for n in range(300)), "deep"
