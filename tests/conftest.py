"""Fixtures of all tests: one thread, no gradients, and the plans (device, graph, synchronisation) engines run under."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
from collections.abc import Iterator
from functools import cache

import pytest
import torch
import torch.utils.collect_env
import typer.main
import typer.rich_utils  # reads FORCE_COLOR when it is imported, and tests set it
import typer.testing
from hypothesis import HealthCheck, settings

# Without a GPU the Triton kernels run in its interpreter, which must be chosen before any kernel file is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from known_results import remember_blocks
from toy.interpreter import compute_no_unused_checks, make_types_once, prepare_once_a_launch, round_e4m3_as_torch
from toy.interrupts import QUIET_PROC
from toy.plans import CPU_PLANS, GPU_PLANS, MAIN_GPU_PLANS, Plan, params
from toy.timed import check_their_files_say_so

from specbench.harness.metrics import doubts
from specbench.harness.run import machine_state
from specbench.harness.store import run_directory

# Workers and hundreds of processes that tests start import the same modules: they are compiled once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start: several share the cores
# vLLM's n-gram drafter is numba's, which else gives all of vLLM a thread for each core: they wait for each other.
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
# 27 ms a call.
typer.testing._get_command = typer.main.get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]
# lm-eval asks for it with each evaluation: pip lists what is installed, 2 s a call.
torch.utils.collect_env.get_pretty_env_info = cache(torch.utils.collect_env.get_pretty_env_info)
if os.environ.get("TRITON_INTERPRET") == "1":
    prepare_once_a_launch()
    make_types_once()
    compute_no_unused_checks()
    round_e4m3_as_torch()
# What git says of this checkout stays as it is, and no test takes the power away: 30 and 70 ms a run.
run_directory.git_state = cache(run_directory.git_state)  # type: ignore[attr-defined]
os.fsync = lambda fd: None
remember_blocks()
# A script's background jobs start with Ctrl-C ignored, which specbench respects; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No deadline for examples: the machine may be busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


gc.disable()  # nothing that is imported or collected is garbage: 13 s a worker


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before some are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    check_their_files_say_so(items)


@pytest.fixture(autouse=True, scope="module")
def what_stays() -> None:
    """What was imported and cached by now stays. Each run collects garbage, and would look at all of it each time: half
    of the time of a test that measures."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def what_a_test_imports_stays(what_stays) -> Iterator[None]:
    """Commands import what they need when they run, in the first test of a file. The others would look at it."""
    num_before = len(sys.modules)
    yield
    if len(sys.modules) > num_before:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def no_other_work(monkeypatch):
    """Whatever the machine does beside the tests: blocks that they measure in this process count, and no toy's rounds
    of a few microseconds are called impossible."""
    monkeypatch.setattr(machine_state, "PROC", QUIET_PROC)
    monkeypatch.setattr(doubts, "MAX_GAIN", math.inf)


@pytest.fixture(autouse=True)
def the_same_numbers_in_any_order() -> None:
    """A test's random numbers do not depend on which tests ran before it, and so not on how many workers there are."""
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:  # the same, but torch would keep the call for a GPU to come, with the stack as text: 1.5 ms a test
        torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def no_grad():
    """As the engine runs behind its interface: an operation on a toy's few rows takes a tenth less than under
    `torch.no_grad`."""
    with torch.inference_mode():
        yield


@pytest.fixture(params=params([*CPU_PLANS, *GPU_PLANS]))
def plan(request: pytest.FixtureRequest) -> Plan:
    """Every way of running a decode round."""
    return request.param


@pytest.fixture(params=params([CPU_PLANS[0], *MAIN_GPU_PLANS]))
def main_plan(request: pytest.FixtureRequest) -> Plan:
    """The CPU's own plan, and on a GPU one of each graph plan: for tests with many cases of their own."""
    return request.param


@pytest.fixture(params=params([p for p in GPU_PLANS if p.graph != "none"]))
def graph_plan(request: pytest.FixtureRequest) -> Plan:
    """Plans with captured graphs only."""
    return request.param
