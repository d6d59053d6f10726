"""Training tests need gradients, which the rest of the tests switch off."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode(False), torch.enable_grad():
        yield
