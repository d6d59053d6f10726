"""Makes rounds.json, or its part of one device: `python tests/golden/make_rounds.py --device cuda -o FILE`.

    --device cpu|cuda   whose cases are run
    -o FILE             written along the way; cases that FILE holds already are kept, unless --again
    --merge FILE        adds FILE's cases to rounds.json instead of running any
    --seconds N         starts no case after that time; the next call goes on
    --workers N         as so many processes at once

A case that fails is stored with its error and printed; exit code 1 if any did or is left.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / ".ns"), str(_ROOT / "tests")]

import torch  # noqa: E402
from golden.rounds_file import PATH, Rounds  # noqa: E402
from golden.run_case import Missing, run_case  # noqa: E402
from golden.space import cases  # noqa: E402

_WRITE_EVERY = 25


def main() -> int:
    options = _options()
    if options.merge:
        rounds = Rounds.read(PATH)
        rounds.merge(Rounds.read(options.merge))
        rounds.write(PATH)
        return 0
    if options.workers > 1:
        return _share(options)
    torch.set_num_threads(1)
    with torch.no_grad():
        return _make(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("-o", "--output", type=Path, default=PATH)
    parser.add_argument("--merge", type=Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--share", default="0/1", help=argparse.SUPPRESS)
    return parser.parse_args()


def _share(options: argparse.Namespace) -> int:
    """Every worker runs its share into a file of its own."""
    rounds = Rounds() if options.again else Rounds.read(options.output)
    parts = [options.output.with_name(f"part{i}.json") for i in range(options.workers)]
    workers = []
    for index, part in enumerate(parts):
        rounds.write(part)
        words = ["--device", options.device, "-o", part, "--seconds", options.seconds]
        words += ["--share", f"{index}/{options.workers}"]
        workers.append(subprocess.Popen([sys.executable, __file__, *map(str, words)]))
    codes = [worker.wait() for worker in workers]
    rounds = Rounds.read(options.output)
    for part in parts:
        rounds.merge(Rounds.read(part))
        part.unlink()
    rounds.write(options.output)
    known = {c.name for c in cases(options.device)}
    stored = rounds.cases.get(options.device, {})
    print(f"{len(stored)} of {len(known)} cases of {options.device} in {options.output}")
    print(*_other_texts(rounds, Rounds.read(PATH), options.device), sep="\n")
    return int(any(codes))


def _make(options: argparse.Namespace) -> int:
    device, output = options.device, options.output
    rounds = Rounds.read(output)
    stored = {} if options.again else rounds.cases.get(device, {})
    index, of = map(int, options.share.split("/"))
    mine = cases(device)[index::of]
    rounds.cases[device] = {c.name: stored[c.name] for c in mine if "error" not in stored.get(c.name, {"error": ""})}
    todo = [c for c in mine if c.name not in rounds.cases[device]]
    start, missing, failed, left = time.monotonic(), 0, 0, 0
    for index, case in enumerate(todo):
        if time.monotonic() - start > options.seconds:
            left = len(todo) - index
            break
        try:
            rounds.cases[device][case.name] = run_case(case)
        except Missing as reason:
            missing += 1
            print(f"skipped {case.name}: {reason}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED {case.name}\n{traceback.format_exc()}", flush=True)
            rounds.cases[device][case.name] = {"error": f"{type(error).__name__}: {error}"[:500]}
            if device == "cuda" and _is_lost():
                left = len(todo) - index - 1
                break
        if index % _WRITE_EVERY == 0:
            rounds.write(output)
    rounds.write(output)
    took = time.monotonic() - start
    print(f"{len(rounds.cases[device])} cases of {device} in {output}, {took:.0f} s")
    print(
        f"{failed} failed, {missing} skipped, {left} left", *_other_texts(rounds, Rounds.read(PATH), device), sep="\n"
    )
    return int(failed + left > 0)


def _is_lost() -> bool:
    """Whether the process can do nothing more on the GPU, as after a wrong address."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _other_texts(rounds: Rounds, stored: Rounds, device: str) -> list[str]:
    """Lossless cases that do not say what the target alone says on a CPU."""
    on_cpu = stored.cases.get("cpu", {}) | rounds.cases.get("cpu", {})
    alone = {
        (c.target, c.sampling): on_cpu.get(c.name, {}).get("tokens")
        for c in reversed(cases("cpu"))
        if c.strategy == "no-spec" and c.is_lossless
    }
    return [
        f"OTHER TEXT {c.name}"
        for c in cases(device)
        if c.is_lossless
        and alone[c.target, c.sampling]
        != rounds.cases[device].get(c.name, {}).get("tokens", alone[c.target, c.sampling])
    ]


if __name__ == "__main__":
    sys.exit(main())
