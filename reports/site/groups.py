"""Groups of runs that are shown together: equal in everything, except the load, or on any machine and prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from specbench.harness.judge.keys import GROUPS, comparison_keys
from specbench.harness.store.inputs_record import SamplingRecord

from .runs import SiteRun
from .titles import distinct_titles
from .verdict_claim import claim_title

LOAD_UNKNOWN = "load unknown"
_LOAD = ("max concurrency", "request rate")
_OF_PROMPTS = ("prompts sha256", "number of prompts")
_PROMPT_OPTIONS = ("dataset_path", "output_len", "random_input_len", "random_output_len", "random_range_ratio")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Runs of one kind, newest first. A/B experiments are in separate groups, because their arms are sides."""

    title: str
    runs: tuple[SiteRun, ...]

    @property
    def newest(self) -> SiteRun:
        return self.runs[0]


def by_case(runs: Iterable[SiteRun]) -> list[Group]:
    """Groups in which everything is equal, including the load, in the order of their newest runs. Experiments on the
    same prompts ask different questions, so only those with the same sides are one case."""
    return _grouped(runs, (), kind=lambda run: str(run.is_experiment and [arm.label for arm in run.arms]))


def by_load(runs: Iterable[SiteRun]) -> list[Group]:
    """Groups in which everything is equal except the load and with it the number of prompts: the runs of a sweep."""
    return _grouped(runs, (*_LOAD, *_OF_PROMPTS), kind=lambda run: f"{run.is_experiment} {_requested_prompts(run)}")


def by_kind(runs: Iterable[SiteRun]) -> list[Group]:
    """Runs worth comparing: same model, workload and load, on any machine and with any prompts."""
    return _grouped(runs, _OF_PROMPTS, ("workload",))


def newest_by_load(group: Group) -> dict[str, SiteRun]:
    """The newest run at each load, by the load's name, lightest first."""
    newest: dict[str, SiteRun] = {}
    for run in group.runs:
        newest.setdefault(load_name(run), run)
    return {name: newest[name] for name in sorted(newest, key=lambda name: (newest[name].concurrency or 0, name))}


def load_name(run: SiteRun) -> str:
    rate = run.record.sampling.request_rate if run.record.sampling else None
    if rate:
        return f"{rate:g} requests/s"
    return f"concurrency {run.concurrency}" if run.concurrency else LOAD_UNKNOWN


def _grouped(
    runs: Iterable[SiteRun],
    without: tuple[str, ...],
    among: Sequence[str] = GROUPS,
    kind: Callable[[SiteRun], str] = lambda run: str(run.is_experiment),
) -> list[Group]:
    groups: dict[tuple[str, ...], list[SiteRun]] = {}
    for run in runs:
        keys = comparison_keys(run.record)
        alike = (kind(run), *(f"{g}.{k}={v}" for g in among for k, v in keys[g].items() if k not in without))
        groups.setdefault(alike, []).append(run)
    newest = [own[0] for own in groups.values()]
    titles = distinct_titles([_title(run, without) for run in newest], newest)
    return [Group(title=title, runs=tuple(own)) for title, own in zip(titles, groups.values(), strict=True)]


def _requested_prompts(run: SiteRun) -> str:
    """Which prompts were requested, except for their number: different lengths are not a different load."""
    config = run.record.config
    return "" if config is None else str([getattr(config, name) for name in _PROMPT_OPTIONS])


def _title(run: SiteRun, without: tuple[str, ...]) -> str:
    keys = comparison_keys(run.record)["workload"]
    words = [keys["model"], keys["name"], run.hardware, _sampling(run.record.sampling)]
    if _LOAD[0] not in without:
        words += [_load(keys), f"{keys['number of prompts']} prompts"]
    sides = "A/B" if run.is_experiment else ""
    if run.ab is not None:
        sides = claim_title(run.ab) if run.ab.is_aa else f"A/B: {claim_title(run.ab)}"
    return ", ".join(word for word in [sides, *words] if word)


def _load(keys: Mapping[str, str]) -> str:
    if keys[_LOAD[1]] not in ("unknown", "None"):
        return f"{keys[_LOAD[1]]} requests/s"
    return "" if keys[_LOAD[0]] in ("unknown", "None") else f"concurrency {keys[_LOAD[0]]}"


def _sampling(sampling: SamplingRecord | None) -> str:
    if sampling is None:
        return ""
    words = [sampling.said_temperature if sampling.is_sampled else "", sampling.edits]
    return ", ".join(filter(None, words))
