"""A target that heads are loaded for: of the module's TARGET, if it has one."""

from __future__ import annotations

import pytest
from toy.checkpoints import llama_config, load_written, write_llama


@pytest.fixture(scope="module")
def target(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("target")
    write_llama(folder, getattr(request.module, "TARGET", None) or llama_config())
    return load_written(folder)
