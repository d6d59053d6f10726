"""The one pairing of requests, of runs, comparisons and experiments: by repeat, prompt and n-th run of the prompt."""

from __future__ import annotations

import pandas as pd

from specbench.harness.metrics.same_requests import count_same_outputs, pair_requests


def rows(*requests) -> pd.DataFrame:
    """(repeat, request id, prompt, output) each; of an output "" the request failed."""
    found = pd.DataFrame(requests, columns=["repeat", "request_id", "prompt_id", "output_sha256"])
    return found.assign(finish_reason=["length" if output else "error" for output in found["output_sha256"]])


def test_the_nth_run_of_a_prompt_meets_the_nth():
    a = rows((0, 0, "p", "x"), (0, 1, "q", "y"), (0, 2, "p", "z"), (1, 0, "p", "x"))
    b = rows((1, 0, "p", "other"), (0, 5, "p", "z"), (0, 3, "p", "x"), (0, 4, "q", "y"), (0, 9, "p", "third"))
    pairs = pair_requests(a, b, ["output_sha256", "request_id"])
    assert sorted(zip(pairs["request_id_a"], pairs["request_id_b"], strict=True)) == [(0, 0), (0, 3), (1, 4), (2, 5)]
    assert count_same_outputs(a, b) == (3, 4)


def test_nothing_in_common():
    assert count_same_outputs(rows((0, 0, "p", "x")), rows((1, 0, "p", "x"))) == (0, 0)
    assert count_same_outputs(rows(), rows((1, 0, "p", "x"))) == (0, 0)


def test_failed_requests_are_not_the_same_answer():
    a = rows((0, 0, "p", ""), (0, 1, "q", "y"))
    assert count_same_outputs(a, a) == (1, 2)


def test_aborted_requests_are_not_the_same_answer():
    a = rows((0, 0, "p", "x"), (0, 1, "q", "y")).assign(finish_reason=["abort", "stop"])
    assert count_same_outputs(a, a) == (1, 2)


def test_outputs_that_are_unknown_or_of_another_form_are_not_compared():
    a = rows((0, 0, "p", "x"), (0, 1, "q", "y"))
    unknown = a.assign(output_sha256=None)
    assert count_same_outputs(unknown, unknown) == (0, 0)
    of_text = a.assign(output_sha256=["text:x", "text:y"])
    assert count_same_outputs(a, of_text) == (0, 0)
    assert count_same_outputs(of_text, of_text) == (2, 2)
    assert count_same_outputs(a, a.assign(output_sha256=["x", None])) == (1, 1)
