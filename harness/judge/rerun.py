"""Commands that repeat the measurements of stored runs: two commits in turns, several loads, the machine's noise."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from specbench.harness.spec.commands import CertifyOptions, SweepOptions
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.fields import Options
from specbench.harness.spec.options import RunOptions
from specbench.harness.spec.plan import unread_lengths
from specbench.harness.store.run_record import RunRecord

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NOT_THE_LOAD = ("num_repeats", "ranges")  # an experiment counts its own blocks; ranges are for profilers


def load_options(record: RunRecord, kind: type[Options] = RunOptions) -> str:
    """Everything measured besides the arms, as options of a command (`kind`); defaults are left out. Empty for imported
    figures."""
    return "" if record.config is None else _options(record.config, kind)


def floor_command(record: RunRecord, arm: str) -> str:
    """`specbench power` for an arm, under the load of a run."""
    return _command("specbench power --aa 10", [_text(record, arm)], load_options(record))


def sweep_command(record: RunRecord, arms: Sequence[str]) -> str:
    """`specbench sweep` of its arms, at loads around those of a single user and of a small server."""
    texts = [_text(record, arm) for arm in arms]
    return _command("specbench sweep --max-concurrency 1,4,16", texts, load_options(record, SweepOptions))


def certify_command(record: RunRecord) -> str:
    """`specbench certify` for both sides of an A/B: whether outputs differ by near-ties or by errors. Empty if one
    command cannot tell: sides that are not arms yet, of other revisions, or under other conditions."""
    assert record.ab is not None
    known = [side.config for side in record.ab.sides.values()] or [record.config]
    configs = [config for config in known if config is not None]
    options = {_options(config, CertifyOptions) for config in configs}
    texts = list(dict.fromkeys(arm.text for config in configs for arm in config.arms))
    if len(options) != 1 or any(side.sha for side in record.ab.plan.sides):
        return ""
    return _command("specbench certify", texts, options.pop())


def _options(config: RunConfig, kind: type[Options]) -> str:
    words, unread = list[str](), unread_lengths(config)
    for name, option in kind.schema().items():
        value = getattr(config, name, option.default)
        if name in (*_NOT_THE_LOAD, *unread) or value in (None, option.default):
            continue
        if option.kind is bool:
            words.append(option.flag)
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [option.flag, f"{one:g}" if isinstance(one, float) else _word(str(one))]
    return " ".join(words)


def _word(text: str) -> str:
    """Quotes for a shell; records start paths below the user's home with ~, which must stay unquoted."""
    home, _, rest = text.partition("/")
    return f"~/{shlex.quote(rest)}" if home == "~" else shlex.quote(text)


def _text(record: RunRecord, label: str) -> str:
    """The arm with every requested switch; for an A/B, the side."""
    if record.ab is not None:
        return record.ab.names.get(label, label)
    arms = record.config.arms if record.config else ()
    return next((arm.text for arm in arms if arm.label == label), label)


def _command(begin: str, arms: Sequence[str], options: str) -> str:
    return " ".join([begin, *(f"-s {shlex.quote(arm)}" for arm in arms), *([options] if options else [])])


def rerun_command(before: str, after: str, arm: str, options: str) -> str:
    """`specbench ab` for two commits, or why there is none: local changes and installed copies cannot be run again."""
    for commit in (before, after):
        if not _COMMIT.fullmatch(commit.partition("+")[0]):
            return f"measuring again from a checkout: {commit} is not a commit"
        if "+" in commit:
            return f"measuring again without local changes: {commit[:12]}+ cannot be checked out"
    sides = [shlex.quote(f"ref:{commit[:12]} {shlex.quote(arm)}") for commit in (before, after)]
    return " ".join(filter(None, [f"specbench ab -A {sides[0]} -B {sides[1]}", options]))
