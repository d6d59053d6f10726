"""Titles of sections about several runs; equal ones get what differs appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specbench.harness.judge.keys import comparison_keys
from specbench.harness.store.files import to_object
from specbench.reports.cells import NOTHING

from .runs import SiteRun

_MAX_EXTRA = 3
_SHA = "prompts sha256"  # shown only if nothing else distinguishes two runs


def distinct_titles(titles: Sequence[str], runs: Sequence[SiteRun]) -> list[str]:
    """The title of each run. Equal titles get what differs between their runs: hardware, workload and sampling first,
    then options (lengths, data set), and the start time if nothing else differs."""
    same: dict[str, list[int]] = {}
    for n, title in enumerate(titles):
        same.setdefault(title, []).append(n)
    found = list(titles)
    for title, places in same.items():
        if len(places) > 1:
            for n, words in zip(places, _differences([runs[n] for n in places]), strict=True):
                found[n] = f"{title}, {words}"
    return found


def _differences(runs: Sequence[SiteRun]) -> list[str]:
    """As few differences as tell them apart, and at most `_MAX_EXTRA` more than the first."""
    settings = [_settings(run) for run in runs]
    names = list(dict.fromkeys(name for one in settings for name in one))
    differ = [name for name in names if len({one.get(name, NOTHING) for one in settings}) > 1]
    differ = sorted(differ, key=lambda name: name == _SHA)
    for num in range(min(_MAX_EXTRA, len(differ)), len(differ) + 1):
        kept = [name for name in differ[:num] if name != _SHA or num == 1]
        words = [", ".join(f"{name} {one.get(name, NOTHING)}" for name in kept) for one in settings]
        if len(set(words)) == len(words):
            return words
    began = [f"began {run.started_utc.replace('T', ' ')[:19]}" for run in runs]
    return began if len(set(began)) == len(began) else [run.run_id for run in runs]


def _settings(run: SiteRun) -> Mapping[str, str]:
    """What a run was asked to do, by the names that a reader knows."""
    keys = comparison_keys(run.record)
    found = {name: value for group in ("workload", "sampling", "hardware") for name, value in keys[group].items()}
    options = to_object(run.record.config) if run.record.config else {}
    for name, value in options.items():
        words = name.replace("num_", "number_of_").replace("_", " ")
        if not isinstance(value, (dict, list)) and words not in found:
            found[words] = NOTHING if value in (None, "") else str(value)
    return found
