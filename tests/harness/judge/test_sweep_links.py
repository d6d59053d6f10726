"""A sweep from somebody else: links in it are named, not followed."""

from __future__ import annotations

import pytest
from sweep_samples import stored_sweep

from specbench.harness.store.sweep_directory import SweepDirectory


@pytest.mark.parametrize("place", ["linked", "runs/linked"])
def test_links_in_a_sweep_are_refused(tmp_path, place):
    path = stored_sweep(tmp_path).path
    assert SweepDirectory.open(path).runs()
    (path / place).symlink_to(next((path / "runs").iterdir()))
    with pytest.raises(ValueError, match=f"{place}: is a symbolic link"):
        SweepDirectory.open(path)
