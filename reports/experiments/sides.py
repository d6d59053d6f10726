"""The sides of an A/B experiment: what differs, and what both have."""

from __future__ import annotations

from specbench.harness.store.ab_judgement import Judgement


def apart(record: Judgement) -> tuple[dict[str, str], str]:
    """What only one side has, by its label, and what both have. If the options are equal, the text as typed
    distinguishes them. Forced acceptance is shown elsewhere, unless nothing else differs."""
    sides = {side.label: side for side in record.plan.sides}
    arms = record.arms
    parts = {label: (arms[label].name or arms[label].strategy).split(",") for label in "AB"}
    kept = {label: [p for p in found if not p.startswith("acceptance=")] for label, found in parts.items()}
    if record.is_aa or set(kept["A"]) != set(kept["B"]):
        parts = kept
    both = [p for p in parts["A"] if p in parts["B"]]
    only = {label: ",".join(p for p in found if p not in both) for label, found in parts.items()}
    refs = {label: f"at {side.ref}" if side.ref else "" for label, side in sides.items()}
    if not all(only.values()) and not any(refs.values()):
        return {label: sides[label].text or ",".join(parts[label]) for label in "AB"}, ",".join(both)
    return {label: f"{only[label]} {refs[label]}".strip() or "the current code" for label in "AB"}, ",".join(both)
