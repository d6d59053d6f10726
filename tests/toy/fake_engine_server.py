"""A stand-in for an engine's server, run as a program: fake_engine_server.py KIND --host H --port P [more].

`good`; `500`: every answer from the third request of a block on; `dies`: at that request; `deaf`: ignores SIGTERM;
`mute`: never ready; `exits`. `--as`: whose answers it gives. Where a way to speculate is given it says that it
speculates. Its command line goes to the log.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from toy.openai_server import OWNERS, OpenAIServer, serving  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("kind", nargs="?", default="good")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--as", dest="engine", choices=OWNERS, default="llama.cpp")
    parser.add_argument("--spec-type", "--speculative-algorithm", "--speculative-config", default="none")
    given, _ = parser.parse_known_args()
    print("started as", *sys.argv[1:], flush=True)
    if given.kind == "exits":
        sys.exit("error: unknown model architecture")
    if given.kind == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    num_measured = 0

    def fault(number: int, asked: dict) -> str:
        nonlocal num_measured
        num_measured += server.is_measured
        if given.kind == "dies" and num_measured > 2:
            print("GGML_ASSERT failed: error in ggml", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return "500" if given.kind == "500" and num_measured > 2 else ""

    if given.kind == "mute":
        time.sleep(300)
    speculates = given.spec_type != "none"
    server = OpenAIServer(kind=given.engine, port=given.port, speculates=speculates, sizes=(2,), fault=fault)
    with serving(server):
        time.sleep(300)


if __name__ == "__main__":
    main()
