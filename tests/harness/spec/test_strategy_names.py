"""No strategy is known by its name outside the table that registers it: what others must know, it declares."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from specbench.harness.registry import STRATEGIES

# Another engine's own words for our strategies: a translation has to name what it translates.
TRANSLATIONS = tuple(f"engines/{name}/" for name in ("llama_cpp", "sglang", "vllm"))
HARNESS = Path(__file__).resolve().parents[3] / "harness"
_ARGUMENT = re.compile(rf"({'|'.join(STRATEGIES)})(:[\w=,./-]*)?")


def _names(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every string, f-strings' parts too, that is a strategy's name or argument; prose is not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _ARGUMENT.fullmatch(node.value.strip()):
            yield node.lineno, node.value


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if arm == 'eagle': pass", True),
        ("default = ['no-spec', x]", True),
        ("arm = f'eagle:k={k}'", True),
        ("help = 'As eagle:k=4, repeatable.'", False),
        ("name = 'eagle3'", False),
    ],
)
def test_the_search_itself(source, found):
    assert bool(list(_names(source))) is found


def _translates(path: Path) -> bool:
    return path.relative_to(HARNESS).as_posix().startswith(TRANSLATIONS)


def test_no_strategy_is_named_in_harness():
    files = [path for path in sorted(HARNESS.rglob("*.py")) if not _translates(path)]
    assert len(files) > 100
    assert not [f"{path}:{line} {text!r}" for path in files for line, text in _names(path.read_text())]
