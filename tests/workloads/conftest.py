import json
import os
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from workloads.fake_hub import FakeHub

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Every test has its own cache and no hub."""
    root = tmp_path / "cache"
    monkeypatch.setenv("SPECBENCH_CACHE", str(root))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    return root


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    server.asked, server.sent_bytes = [], 0
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def elsewhere(hub, tmp_path):
    """Runs code that prints JSON in a fresh Python, because the hub's client reads its endpoint when imported.

    With time to answer: the hub of a busy machine is slow.
    """
    patience = "from specbench.workloads.assets import hub as a; a.PROBE_TIMEOUT_S = a.ANSWER_TIMEOUT_S = 120\n"
    environment = {
        **{key: value for key, value in os.environ.items() if "proxy" not in key.lower() and key != "HF_HUB_OFFLINE"},
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_ETAG_TIMEOUT": "120",
        "HF_HUB_DOWNLOAD_TIMEOUT": "120",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "SPECBENCH_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": f"{ROOT / '.ns'}:{ROOT / 'tests'}",
    }

    def run(code: str, *words: str):
        command = [sys.executable, "-c", patience + code, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
