"""SafeAILab's own EAGLE code with the shipped head, chain and tree, round by round against our engine: fp32 on a CPU.

    git clone https://github.com/SafeAILab/EAGLE    # read at cb7e0841fe0c
    python -m venv VENV && VENV/bin/pip install torch 'transformers==4.53.*'
    PYTHONPATH=.ns python benchmarks/safeailab_rounds.py --eagle-source EAGLE --python VENV/bin/python

Same prompts, target and head, greedy, one request at a time. Exit code 1 for a token or an accepted count that differs
where the target's logits are not nearly tied.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kept import RESULTS
from witness_rounds import HEAD, MODEL, Witnessed, keep, measured, options, prompts_of

from specbench.harness.engines.native import target as targets
from specbench.harness.spec.conditions import RunConfig
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.assets.shipped_heads import shipped_folder

# Their `total_token` counts the root as our `num_draft_tokens` does; their `depth` counts the levels behind the first.
ARMS = {
    "eagle:k=4": dict(total_token=5, depth=3, top_k=1),
    "eagle-topk:num_steps=4,topk=4,num_draft_tokens=12": dict(total_token=12, depth=3, top_k=4),
}
CHILD = Path(__file__).with_name("safeailab_child.py")


def commit(source: Path) -> str:
    """ValueError where its code is not as it was cloned."""
    git = ["git", "-C", str(source)]
    changed = subprocess.run([*git, "status", "--porcelain", "--", "eagle"], capture_output=True, text=True, check=True)
    if changed.stdout:
        raise ValueError(f"--eagle-source {source}: files below eagle/ were changed; allowed: a clone as it is")
    return subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def witness(source: Path, python: Path, job: dict[str, Any]) -> dict[str, Any]:
    """`rounds` by arm and prompt, and `versions`."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder) / "job.json", Path(folder) / "answer.json"
        asked.write_text(json.dumps(job))
        environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
        subprocess.run([str(python), str(CHILD), str(source), str(asked), str(answer)], check=True, env=environment)
        return json.loads(answer.read_text())


def main() -> int:
    parser = options(__doc__, RESULTS / "safeailab-rounds.json")
    parser.add_argument("--eagle-source", type=Path, required=True, help="a clone of SafeAILab/EAGLE")
    parser.add_argument("--python", type=Path, required=True, help="one with torch and transformers 4.53")
    given = parser.parse_args()
    theirs = commit(given.eagle_source)
    run = measured(list(ARMS), given)
    config = run.record.config
    assert isinstance(config, RunConfig)
    job = dict(
        model=str(resolve_model(MODEL).path),
        head=str(shipped_folder(HEAD)),
        dtype=config.dtype,
        output_len=given.output_len,
        stop_token_ids=list(targets.load(config).eos_token_ids),
        prompts=prompts_of(run),
        arms=ARMS,
    )
    answer = witness(given.eagle_source, given.python, job)
    arms = [
        Witnessed(arm, ", ".join(f"{name}={value}" for name, value in tree.items()), answer["rounds"][arm])
        for arm, tree in ARMS.items()
    ]
    command = (
        "PYTHONPATH=.ns python benchmarks/safeailab_rounds.py --eagle-source EAGLE --python VENV/bin/python "
        f"--num-prompts {given.num_prompts} --output-len {given.output_len}"
    )
    return keep(given.out, run, dict(name="SafeAILab/EAGLE", commit=theirs, **answer["versions"]), arms, command)


if __name__ == "__main__":
    sys.exit(main())
