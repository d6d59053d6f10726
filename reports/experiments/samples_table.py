"""Two lm-eval sample files as a table: a row per filter and metric; the notes say what could not be paired."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from specbench.harness.judge.samples_verdict import PairedMetric, PairedSamples
from specbench.reports.cells import NOTHING, formatted, share, with_interval
from specbench.reports.document import Table, table_of


def samples_table(found: PairedSamples) -> Table:
    columns: dict[str, Callable[[PairedMetric], str]] = {
        "filter": lambda m: m.filter,
        "metric": lambda m: m.metric,
        "A": lambda m: formatted(m.a, ".4f"),
        "B": lambda m: formatted(m.b, ".4f"),
        "difference [95% CI]": lambda m: with_interval("{:+.4f}".format, m.items.difference, m.items.low, m.items.high),
        "won/lost": lambda m: NOTHING if m.items.p is None else f"{m.items.won}/{m.items.lost}",
        "p": lambda m: formatted(m.items.p_test, ".2g"),
        "p (Holm)": lambda m: formatted(m.p_holm, ".2g"),
        "detectable": lambda m: formatted(m.items.detectable, ".4f"),
        "same output": lambda m: share(m.items.same_output),
        "items": lambda m: str(m.items.n),
        "verdict": lambda m: m.verdict if m.items.n else "no data",
    }
    task = " and ".join(dict.fromkeys(name for name in found.tasks if name))
    return table_of(f"B against A, item by item{f': {task}' if task else ''}", columns, found.metrics, _notes(found))


def _notes(found: PairedSamples) -> Iterator[str]:
    yield f"A: {found.a}"
    yield f"B: {found.b}"
    if len({name for name in found.tasks if name}) > 1:
        yield f"A and B are of tasks with different names: {' and '.join(found.tasks)}"
    for m in found.metrics:
        name = f"{m.filter}, {m.metric}"
        for reason, count in m.left_out.items():
            yield f"{name}: {count} items left out, {reason}"
        if m.num_other_prompts:
            yield (
                f"{name}: {m.num_other_prompts} of {m.items.n} pairs have different prompts (few-shot examples, "
                "template), which may cause part of the difference"
            )
        if m.num_by_target:
            yield f"{name}: {m.num_by_target} of {m.items.n} pairs were matched by the hash of their target alone"
        if m.higher_is_better is None:
            yield f"{name}: whether higher is better is not recorded (no results_*.json of lm-eval next to the samples)"
    yield (
        "p: McNemar exact, interval of Agresti and Min 2005; paired t for values other than 0 and 1. detectable: at "
        f"80% power and {found.alpha:.0%} error, given how many items differ."
    )
    yield (
        f"a verdict of change: p (Holm, over the rows) at most {found.alpha:g} and a difference of {found.margin:g} or "
        f"more; equivalent: the interval lies within ±{found.margin:g}; inconclusive is not 'unchanged'."
    )
