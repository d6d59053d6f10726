"""A first run: no speculation against n-gram drafts on the same prompts, as a table.

python examples/first_run.py
"""

from __future__ import annotations

import specbench

OPTIONS = {"dataset_name": "sharegpt-held-out", "num_prompts": 20}


def main(**options: object) -> specbench.Run:
    run = specbench.run(strategy=["no-spec", "ngram:k=4"], **{**OPTIONS, **options})
    print(run.table()[["tps", "speedup", "tpot_ms.mean", "tpot_speedup", "acceptance_length"]].round(2).to_string())
    print(f"stored in {run.path}")
    return run


if __name__ == "__main__":
    main()
