"""The noise floor: from an A/A whose noise is chosen, to the file of this hardware and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ab_samples import experiment

from specbench.harness.judge.ab_verdict import judge
from specbench.harness.judge.noise import false_verdicts, floor_file, noise_floor, outlook, read_floors, store_floor
from specbench.harness.store.codec import from_document, to_document
from specbench.harness.store.environment import Cpu, Environment, Gpu, Hardware
from specbench.harness.store.noise_record import NoiseFloor

HARDWARE = Hardware(cpu=Cpu(model="Test CPU", logical_cores=4), gpus=(Gpu(name="H200"),))
ENVIRONMENT = Environment(hardware=HARDWARE)


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def floor(tmp_path_factory) -> NoiseFloor:
    run = experiment(tmp_path_factory.mktemp("aa"), noise=0.01, num_blocks=30, num_requests=2, is_aa=True, seed=2)
    return noise_floor(judge(run), run.record)


def test_the_noise_that_was_put_in(floor):
    step = next(m for m in floor.metrics if m.name == "step time")
    assert step.cv_in_block == pytest.approx(0.01, rel=0.25)
    assert step.cv_between_blocks == pytest.approx(0.02, rel=0.35)
    assert step.least_effect["10"] == pytest.approx(0.014, rel=0.3)
    assert 6 <= step.blocks_needed["0.02"] <= 12 and step.blocks_needed["0.05"] == 6
    assert step.blocks_needed["0.01"] > step.blocks_needed["0.02"]
    assert step.false_verdicts <= 0.05
    assert floor.arm == "eagle:k=2" and floor.num_blocks == 30


def test_prompts_have_no_drift(floor):
    tokens = next(m for m in floor.metrics if m.name == "tokens per step")
    assert tokens.cv_in_block == 0 and tokens.cv_between_blocks is None


def test_false_verdicts_of_swapped_sides():
    draw = np.random.default_rng(3)
    assert false_verdicts(draw.normal(0, 0.02, 200)) == pytest.approx(0.05, abs=0.015)
    assert false_verdicts(draw.normal(0, 0.001, 200)) == 0.0, "what differs less than matters is no verdict"


def test_one_file_for_each_hardware(floor):
    assert read_floors(ENVIRONMENT) == ()
    path = store_floor(floor, ENVIRONMENT)
    assert path == floor_file(ENVIRONMENT) and path.parent.name == "noise"
    other = Environment(hardware=replace(HARDWARE, gpus=()))
    assert floor_file(other) != path and read_floors(other) == ()
    store_floor(replace(floor, run_id="later"), ENVIRONMENT)
    assert [f.run_id for f in read_floors(ENVIRONMENT)] == ["later", floor.run_id]
    store_floor(replace(floor, run_id="later", measured_utc="2999-01-02T03:04:05Z"), ENVIRONMENT)
    store_floor(floor, ENVIRONMENT)  # resumed
    assert [f.run_id for f in read_floors(ENVIRONMENT)] == ["later", floor.run_id]


@pytest.mark.parametrize("stored", sorted(Path(__file__).parents[3].glob("benchmarks/runs/*/*/noise.json")), ids=str)
def test_stored_floors_read_and_write_the_same(stored):
    raw = json.loads(stored.read_text())
    assert to_document(from_document(NoiseFloor, raw, "noise.json")) == raw


def test_the_outlook_names_what_could_be_shown(floor):
    text = outlook(floor, 10)
    assert text.startswith("10 blocks could detect changes of step time 1.") and "TPOT" in text and "eagle:k=2" in text


SCHEMA = '{"schema": "specbench.noise/1"'


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"schema": "specbench.noise/9"}', SCHEMA + "}", SCHEMA + ', "floors": [{"arm": "eagle"}]}']
)
def test_a_damaged_file_is_named(content):
    path = floor_file(ENVIRONMENT)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(ValueError, match=r"noise/[0-9a-f]{12}\.json: .*specbench power --aa 10"):
        read_floors(ENVIRONMENT)


def test_too_few_blocks(tmp_path):
    run = experiment(tmp_path, num_blocks=1)
    with pytest.raises(ValueError, match="too few"):
        noise_floor(judge(run), run.record)


def test_blocks_that_were_rejected_are_told_with_their_reasons(tmp_path):
    reasons = {("A", n): ["load 5.1 on 2 cores"] for n in range(3)}
    run = experiment(tmp_path, num_blocks=3, reasons=reasons)
    with pytest.raises(ValueError, match=r"aa: 0 blocks .* 3 are rejected \(A: load 5.1 on 2 cores\)"):
        noise_floor(judge(run), run.record)
