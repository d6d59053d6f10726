"""Children that are started before anybody waits for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from toy import fake_child
from toy.alive import is_alive

from specbench.harness.engines.child import process
from specbench.harness.engines.child.begun import BegunChildren
from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.engines.process.waiting import Waiting


@contextmanager
def started(log: Path, engine: dict[str, object]) -> Iterator[ChildProcess]:
    with ChildProcess([sys.executable, fake_child.__file__], {}, log) as child:
        child.begin({"do": "open", "engine": engine})
        yield child


def opened(child: ChildProcess) -> dict[str, object]:
    return child.opened(600, Waiting(pytest.fail, "a start that takes no time", child.log))


def test_a_child_that_was_begun_is_the_one_that_is_taken(tmp_path):
    begun = BegunChildren()
    begun.begin("a", started(tmp_path / "a", {}))
    begun.begin("b", started(tmp_path / "b", {}))
    with begun.taken("b", started(tmp_path / "other", {})) as child:
        assert child.log == tmp_path / "b" and opened(child)["version"] == "1.2"
        assert is_alive(child.pid)
    assert not is_alive(child.pid), "ends with its turn"
    assert not (tmp_path / "other").exists(), "nothing else was started"
    with begun.taken("b", started(tmp_path / "other", {})) as child:
        assert child.log == tmp_path / "other", "the second time there is none left"
        assert opened(child)["version"] == "1.2"
    begun.close()


def test_those_that_nobody_took_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "_CLOSE_S", 0.2)  # both hang: neither would end by itself
    begun, children = BegunChildren(), []

    @contextmanager
    def seen(name: str) -> Iterator[ChildProcess]:
        with started(tmp_path / name, {"hangs": 1}) as child:
            children.append(child)
            yield child

    begun.begin("a", seen("a"))
    begun.begin("b", seen("b"))
    assert len(children) == 2 and all(is_alive(child.pid) for child in children)
    begun.close()
    assert not any(is_alive(child.pid) for child in children)
    begun.close()


def test_an_error_of_its_turn_ends_it(tmp_path):
    begun = BegunChildren()
    begun.begin("a", started(tmp_path / "a", {"fails": 1}))
    with pytest.raises(ValueError, match="no such switch"), begun.taken("a", started(tmp_path / "other", {})) as child:
        opened(child)
    assert not is_alive(child.pid)
