"""A server with faults, run as a program: fake_server.py KIND --host H --port P [anything]. Standard library only.

`good`; `slow`: ready after the second look; `never`: 503 for ever; `exits`; `taken`: as if its port were taken, once;
`deaf`: ignores SIGTERM and leaves a child in a session of its own; `dies`: ends at GET /die.
"""

import argparse
import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        if self.path == "/die":
            print("RuntimeError: out of words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        self.server.num_looks += 1
        status = 200
        if self.path == "/health" and self.server.kind == "no-health":
            status = 404
        if self.server.kind == "never" or (self.server.kind == "slow" and self.server.num_looks < 3):
            status = 503
        body = json.dumps({"object": "list", "data": [{"id": "fake"}], "seen": sys.argv[1:]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


class Server(ThreadingHTTPServer):
    kind = "good"
    num_looks = 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    given, _ = parser.parse_known_args()
    if given.kind == "exits":
        print("loading\nValueError: no such head\nbye", flush=True)
        sys.exit(3)
    if given.kind == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            if os.fork() > 0:
                os._exit(0)
            time.sleep(300)
            os._exit(0)
    try:
        server = Server((given.host, given.port), Handler)
    except OSError as error:
        sys.exit(f"OSError: {error.strerror}")
    server.kind = given.kind
    print("serving", flush=True)
    server.serve_forever(0.01)


if __name__ == "__main__":
    main()
