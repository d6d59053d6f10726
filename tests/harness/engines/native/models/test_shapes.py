"""The published shapes have the numbers of parameters that their model cards state."""

from __future__ import annotations

import pytest

from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.engines.native.target import num_weights

BILLIONS = {
    "llama-3.1-8b": 8.03,
    "llama-3.3-70b": 70.6,
    "llama-2-70b": 69.0,
    "mistral-7b": 7.25,
    "qwen2.5-1.5b": 1.54,
    "qwen3-0.6b": 0.596,
    "qwen3-4b": 4.02,
    "qwen3-8b": 8.19,
    "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5,
    "qwen3-30b-a3b-fp8": 30.5,
    "smollm2-135m": 0.135,
}


def test_every_shape_of_a_published_model_is_here():
    assert set(BILLIONS) == set(SHAPES) - {"toy"}


@pytest.mark.parametrize("name", BILLIONS)
def test_number_of_parameters(name):
    assert num_weights(SHAPES[name].config) / 1e9 == pytest.approx(BILLIONS[name], rel=0.004)
