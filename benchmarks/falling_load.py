"""The baseline beside busy processes, the arm behind it alone: what the table says of a speed-up that cannot be.

    PYTHONPATH=.ns python benchmarks/falling_load.py --loops 8 [options of specbench run]

One repeat. The loops end as soon as the record of the first block is on disk (`blocks.jsonl`), before the second arm is
warmed up. The command's own table is printed, and its exit code returned.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = "run -s no-spec -s naive-eagle:k=4 --num-repeats 1 --num-prompts 2 --max-concurrency 1 --output-len 64"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loops", type=int, default=8, help="busy processes beside the first arm")
    given, words = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="falling-load-") as folder:
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.loops)]
        try:
            command = [sys.executable, "-m", "specbench", *RUN.split(), "--output-dir", folder, *words]
            with subprocess.Popen(command) as run:
                while run.poll() is None and not list(Path(folder).glob("*/blocks.jsonl")):
                    time.sleep(0.05)
                for loop in loops:
                    loop.kill()
                return run.wait()
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()


if __name__ == "__main__":
    sys.exit(main())
