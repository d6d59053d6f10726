import os
import subprocess
import sys

import pytest
import torch

from specbench.kernels.triton_support import HAS_TRITON, use_triton

IMPORT_WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch
from specbench.kernels import accept_chain, decode_rows, draft_rows, ngram, philox, rms_norm
from specbench.kernels import rope_store_kv, sample, silu_and_mul, store_draft
from specbench.kernels.triton_support import HAS_TRITON
assert not HAS_TRITON
print(sample.sample(torch.tensor([[0.0, 2.0]]), torch.zeros(1), torch.zeros(1), torch.zeros(1), True).tolist())
try:
    silu_and_mul.silu_and_mul_triton(torch.zeros(1, 2))
except ImportError as error:
    print(error)
"""


def test_cpu_tensors_take_the_reference():
    assert not use_triton(torch.zeros(1))


@pytest.mark.gpu
def test_cuda_tensors_take_triton():
    assert use_triton(torch.zeros(1, device="cuda")) == HAS_TRITON


def test_kernel_files_import_and_run_without_triton():
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT_TRITON], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[1]",
        "kernel '_silu_and_mul_kernel' needs Triton, which is not installed",
    ]
