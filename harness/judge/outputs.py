"""Whether two arms said the same, request by request."""

from __future__ import annotations

from specbench.harness.judge.figures import Side
from specbench.harness.judge.keys import same_prompts
from specbench.harness.metrics.same_requests import count_same_outputs


def same_outputs(a: Side, b: Side) -> tuple[int, int] | None:
    """(requests with identical tokens, requests paired): by repeat, prompt and n-th run of the prompt. None where the
    prompts differ, nothing pairs, or the tokens are not known."""
    if not same_prompts(a.run.record, b.run.record) or any(s.run.record.imported for s in (a, b)):
        return None
    num_same, num_pairs = count_same_outputs(*(side.run.rows("requests", side.arm) for side in (a, b)))
    return (num_same, num_pairs) if num_pairs else None
