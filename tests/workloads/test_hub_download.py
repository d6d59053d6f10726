"""The hub's client against a hub of a few files on this machine: what is fetched, what is skipped, what errors say."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMIT = "c" * 40
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights " * 100,
    "pytorch_model.bin": b"the same weights once more",
    "onnx/model.onnx": b"and once more",
}
DATA = {"main/test-00000-of-00001.parquet": b"rows"}


class FakeHub(BaseHTTPRequestHandler):
    """``some/model`` and the data set ``openai/gsm8k``; ``some/gated`` answers as gated repositories do."""

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def answer(self, with_body: bool) -> None:
        path = self.path.split("?")[0]
        self.server.asked.append(path)
        status, headers, body = self.respond(path)
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def respond(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/":
            return 200, {}, b""
        for prefix, name, files in (("", "some/model", MODEL), ("datasets/", "openai/gsm8k", DATA)):
            kind = "datasets" if prefix else "models"
            if path.startswith(f"/api/{kind}/{name}/tree/"):
                tree = [{"type": "file", "path": file, "size": len(data), "oid": "0"} for file, data in files.items()]
                return 200, {}, json.dumps(tree).encode()
            if path.startswith(f"/api/{kind}/{name}"):
                siblings = [{"rfilename": file, "size": len(data)} for file, data in files.items()]
                return 200, {}, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode()
            for file, data in files.items():
                if path in (f"/{prefix}{name}/resolve/{ref}/{file}" for ref in ("main", COMMIT)):
                    etag = hashlib.sha256(data).hexdigest()
                    return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}, data
        if "some/gated" in path:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "ask first"}, b"{}"
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def resolve_elsewhere(hub, tmp_path):
    """``resolve`` in a fresh Python, because the hub's client reads its endpoint when it is imported."""
    code = (
        "import sys, json\nfrom specbench.workloads.assets import AssetError, resolve\n"
        "try:\n    a = resolve(sys.argv[1])\n    print(json.dumps([str(a.path), a.source, a.sha256]))\n"
        "except AssetError as error:\n    print(json.dumps(str(error)))\n"
    )
    environment = {
        **{key: value for key, value in os.environ.items() if "proxy" not in key.lower() and key != "HF_HUB_OFFLINE"},
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "SPECBENCH_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT / ".ns"),
    }

    def run(name: str):
        command = [sys.executable, "-c", code, name]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_model_is_downloaded_in_one_format_and_once(hub, resolve_elsewhere):
    path, source, sha256 = resolve_elsewhere("some/model")
    assert sorted(file.name for file in Path(path).iterdir()) == ["config.json", "model.safetensors"]
    assert (Path(path) / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
    assert source == f"hub:some/model@{COMMIT}" and len(sha256) == 64
    asked = len(hub.asked)
    assert resolve_elsewhere("some/model") == [path, source, sha256]
    assert len(hub.asked) == asked, "the second call asks nobody"


def test_a_data_set_of_the_table_comes_from_the_hub_first(resolve_elsewhere):
    path, source, sha256 = resolve_elsewhere("gsm8k")
    assert Path(path).read_bytes() == DATA["main/test-00000-of-00001.parquet"]
    assert source == f"hub:openai/gsm8k@{COMMIT}"
    assert sha256 == hashlib.sha256(b"rows").hexdigest()


def test_errors_of_the_hub_say_what_to_do(resolve_elsewhere):
    assert "hub some/gated: some/gated is gated: accept its licence" in resolve_elsewhere("some/gated")
    assert "the hub has no repository some/nothing" in resolve_elsewhere("some/nothing")
