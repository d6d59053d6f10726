"""A target and head whose drafts are sometimes accepted."""

from __future__ import annotations

import pytest
from toy.few_words import FewWords


@pytest.fixture(scope="session")
def few_words(tmp_path_factory: pytest.TempPathFactory) -> FewWords:
    return FewWords(tmp_path_factory.mktemp("few-words"))
