"""A hub of a few files on this machine, for its own client and for `datasets`, which streams from it."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler

COMMIT = "c" * 40
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights " * 100,
    "pytorch_model.bin": b"the same weights once more",
    "onnx/model.onnx": b"and once more",
}
GSM8K = {"main/test-00000-of-00001.parquet": b"rows"}
QUESTIONS = {
    "train.jsonl": b'{"question": "seen by the head"}\n',
    "test.jsonl": b"".join(b'{"question": "%06d %s"}\n' % (row, b"why? " * 140) for row in range(60_000)),
}
REPOSITORIES = {"models/some/model": MODEL, "datasets/openai/gsm8k": GSM8K, "datasets/some/questions": QUESTIONS}


class FakeHub(BaseHTTPRequestHandler):
    """The repositories above; ``some/gated`` answers as gated ones do. ``asked`` and ``sent_bytes`` are counted."""

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def answer(self, with_body: bool) -> None:
        path = self.path.split("?")[0]
        self.server.asked.append(path)
        status, headers, body = self.respond(path)
        if status == 200 and "Range" in self.headers:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            part = body[int(first) : int(last) + 1 if last else None]
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(body)}"
            status, body = 206, part
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.server.sent_bytes += len(body)
            self.wfile.write(body)

    def respond(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/":
            return 200, {}, b""
        for name, files in REPOSITORIES.items():
            if path.startswith(f"/api/{name}"):
                return respond_api(path, name, files)
            for file, data in files.items():
                if path in (f"/{name.removeprefix('models/')}/resolve/{ref}/{file}" for ref in ("main", COMMIT)):
                    etag = hashlib.sha256(data).hexdigest()
                    return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}, data
            if path.startswith(f"/{name}/resolve/"):
                return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b"{}"
        if "some/gated" in path:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "ask first"}, b"{}"
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def log_message(self, *args: object) -> None:
        """Quiet."""


def respond_api(path: str, name: str, files: dict[str, bytes]) -> tuple[int, dict[str, str], bytes]:
    if "/tree/" in path:
        if not path.endswith(("/main", f"/{COMMIT}")):
            return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
        tree = [{"type": "file", "path": file, "size": len(data), "oid": "0"} for file, data in files.items()]
        return 200, {}, json.dumps(tree).encode()
    siblings = [{"rfilename": file, "size": len(data)} for file, data in files.items()]
    return 200, {}, json.dumps({"id": name.partition("/")[2], "sha": COMMIT, "siblings": siblings}).encode()
