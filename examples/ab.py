"""Is n-gram drafting faster with more drafts per round? Interleaved blocks, and a verdict with its interval.

python examples/ab.py
"""

from __future__ import annotations

import specbench

OPTIONS = {"dataset_name": "sharegpt-held-out", "num_prompts": 20, "blocks": 10, "in_process": True}


def main(**options: object) -> specbench.AbResult:
    result = specbench.ab("ngram:k=2", "ngram:k=4", **{**OPTIONS, **options})
    print(result.table()[["a", "b", "change", "low", "high", "verdict"]].to_string())
    print(f"k=4 against k=2: {result.verdict}")
    return result


if __name__ == "__main__":
    main()
