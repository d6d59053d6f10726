"""vLLM with the shipped head, round by round against our engine: fp32 on a CPU.

    make engines    # vLLM 0.32 for a CPU with AVX-512, into .engines/vllm
    PYTHONPATH=.ns python benchmarks/vllm_rounds.py --engine-python .engines/vllm

Same prompts, target and head, greedy, one request at a time. Exit code 1 for a token or an accepted count that differs
where the target's logits are not nearly tied.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kept import RESULTS
from witness_rounds import Witnessed, keep, measured, options, rounds_of

OURS, THEIRS = "eagle:k=4", "vllm/eagle:k=4,engine.enforce_eager=true"


def main() -> int:
    parser = options(__doc__, RESULTS / "vllm-rounds.json")
    parser.add_argument("--engine-python", type=Path, required=True, help="a virtual environment with vLLM")
    given = parser.parse_args()
    run = measured([OURS, THEIRS], given, engine_python=str(given.engine_python))
    rounds = rounds_of(run, THEIRS)
    facts = run.record.arm(THEIRS).engine
    assert facts is not None
    arms = [Witnessed(OURS, "method=eagle3, num_speculative_tokens=4, enforce_eager", rounds)]
    command = (
        "PYTHONPATH=.ns python benchmarks/vllm_rounds.py --engine-python .engines/vllm "
        f"--num-prompts {given.num_prompts} --output-len {given.output_len}"
    )
    witness = dict(name="vLLM", version=facts.version or "", attention=facts.backend or "")
    return keep(given.out, run, witness, arms, command)


if __name__ == "__main__":
    sys.exit(main())
