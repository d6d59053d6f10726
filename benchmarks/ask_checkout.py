"""Runs commands of `specbench` in one process: a list of words a line on stdin, {"code", "said"} a line on stdout.

Many short commands take most of their time to import torch and pandas; here that is done once.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import traceback


def run(words: list[str]) -> tuple[int, str]:
    """Exit code and stdout of one command; 70 where it breaks."""
    sys.argv = ["specbench", *words]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            runpy.run_module("specbench.harness", run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            code = 70
    if code == 70 or "Traceback" in errors.getvalue():
        print(" ".join(words), errors.getvalue(), sep="\n", file=sys.stderr, flush=True)
    return code, said.getvalue()


if __name__ == "__main__":
    for line in sys.stdin:
        code, said = run(json.loads(line))
        print(json.dumps({"code": code, "said": said}), flush=True)
