"""Synthetic GSM8K-style questions, made by the templates of reasoning-gym's ``gsm_symbolic``.

Marked synthetic wherever it appears. The generator is Python code inside a wheel whose sha256 is checked; its three
modules are run from the wheel's bytes in namespaces of their own, so nothing is installed and nothing else is imported.
"""

from __future__ import annotations

import ast
import sys
import types
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from specbench.workloads.assets.resolve import resolve
from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest
from specbench.workloads.questions import Question, QuestionSet, ask_all

PACKAGE = "reasoning_gym"
FOLDER = f"{PACKAGE}/arithmetic/gsm_symbolic"
DEFAULT_OUTPUT_LEN = 256
SUFFIX = " Give the result as your final answer. Do not include units."  # the generator's own ending

Template = Callable[[Random, float], Mapping[str, str]]


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """``num_prompts`` generated questions; the seed decides templates, names and numbers."""
    asset = resolve(request.path or "gsm-symbolic")
    asked = QuestionSet(
        title="synthetic GSM8K-style questions (reasoning-gym gsm_symbolic, difficulty 1.0)",
        questions=generate(asset.path, request.num_prompts, request.seed),
        source=asset.source,
        default_output_len=DEFAULT_OUTPUT_LEN,
        synthetic=True,
    )
    return ask_all(request, tokenizer, asked)


def generate(wheel: Path, count: int, seed: int) -> tuple[Question, ...]:
    """``count`` questions, the same that the package's own data set gives for this seed and size."""
    templates, usable = read_templates(wheel)
    chosen = Random(seed).choices(usable, k=count)
    questions = []
    for index, template in enumerate(chosen):
        example = templates[template](Random(seed + index), 1.0)
        questions.append(
            Question(
                id=f"gsm-symbolic-{seed}-{index}",
                text=example["question"] + SUFFIX,
                category=f"template-{template}",
                reference=str(example["answer"]),
            )
        )
    return tuple(questions)


def read_templates(wheel: Path) -> tuple[dict[int, Template], list[int]]:
    """The question templates by number, and the numbers the package itself uses."""
    with zipfile.ZipFile(wheel) as archive:
        sources = {
            name: archive.read(path).decode()
            for name, path in (
                ("utils", f"{PACKAGE}/utils.py"),
                ("low", f"{FOLDER}/generators_00_49.py"),
                ("high", f"{FOLDER}/generators_50_99.py"),
                ("main", f"{FOLDER}/gsm_symbolic.py"),
            )
        }
    utils = types.ModuleType(f"{PACKAGE}.utils")
    exec(compile(sources["utils"], f"{wheel.name}/utils.py", "exec"), utils.__dict__)
    templates: dict[int, Template] = {}
    for name in ("low", "high"):
        names = run_with_utils(sources[name], f"{wheel.name}/{name}.py", utils)
        templates |= {int(key[9:]): value for key, value in names.items() if key.startswith("generate_")}
    return templates, list_constant(sources["main"], "tasks_ok")


def run_with_utils(source: str, label: str, utils: types.ModuleType) -> dict[str, Template]:
    """Run a module that imports ``reasoning_gym.utils``, which is lent to it for that long and taken away again."""
    lent = {PACKAGE: types.ModuleType(PACKAGE), f"{PACKAGE}.utils": utils}
    saved = {name: sys.modules.get(name) for name in lent}
    sys.modules.update(lent)
    try:
        module = types.ModuleType("generators")
        exec(compile(source, label, "exec"), module.__dict__)
        return module.__dict__
    finally:
        for name, before in saved.items():
            if before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = before


def list_constant(source: str, name: str) -> list[int]:
    """A module-level list of literals, read without running the module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    raise ValueError(f"the generator has no list {name!r}; expected reasoning-gym 0.1.25")
