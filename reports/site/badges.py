"""Short labels for the state of a run and its evidence; the colour only repeats the label."""

from __future__ import annotations

from specbench.harness.judge.certificate_marks import all_passed
from specbench.harness.stats.verdict import EQUIVALENT, IMPROVED, REGRESSED
from specbench.harness.store.ab_judgement import INVALID, Judgement
from specbench.reports.cells import NOTHING
from specbench.reports.document import Cell
from specbench.reports.experiments.verdict_table import verdict_words

from .runs import SiteRun
from .verdict_charts import SIGNS

GOOD, BAD, OPEN = "good", "bad", "open"
_VERDICT_TONES = {IMPROVED: GOOD, EQUIVALENT: GOOD, REGRESSED: BAD, INVALID: BAD}
_GRAPH_CLAIMS = {"void": BAD, "cannot tell": OPEN, "holds": GOOD, "no claim": OPEN}  # the worst first
NONE = Cell(text=NOTHING)


def status(run: SiteRun) -> Cell:
    """The run's status: complete, or how it ended."""
    word = run.record.status
    failed = [arm for arm in run.arms if arm.status in ("failed", "partial")]
    if failed:
        return Cell(text=f"{word}, {len(failed)} of {len(run.arms)} arms failed", tone=BAD)
    return Cell(text=word, tone="" if word == "complete" else OPEN)


def verdict(record: Judgement) -> Cell:
    """An A/B experiment's verdict with its sign; for a mixed one, TPOT's verdict, which decides."""
    word = record.decisive
    sign = "A/A:" if record.is_aa else SIGNS.get(word, "")
    tone = _VERDICT_TONES.get(word, OPEN) if record.same_output.is_enough else BAD
    return Cell(text=f"{sign} {verdict_words(record)}".strip(), tone=tone)


def certificate(run: SiteRun) -> Cell:
    """Losslessness: passed, failed, or not certified."""
    if run.certificate is None:
        return NONE
    if all_passed(run.certificate):
        return Cell(text="lossless", tone=GOOD)
    wrong = [row for row in run.certificate["certificates"] if not row["ok"]]
    return Cell(text=f"NOT LOSSLESS ({len(wrong)})", tone=BAD) if wrong else Cell(text="not finished", tone=OPEN)


def graph_claim(run: SiteRun) -> Cell:
    """The worst graph certificate among the traces."""
    words = [profile.graph.verdict for profile in run.profiles.values()]
    if not words:
        graphs = run.figures.graphs
        return Cell(text="not traced", tone=OPEN) if graphs and graphs.failures else NONE
    word = next((word for word in _GRAPH_CLAIMS if word in words), words[0])
    return Cell(text=f"graphs: {word}" if word != "no claim" else word, tone=_GRAPH_CLAIMS.get(word, OPEN))
