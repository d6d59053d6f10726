"""Whether two versions of this code derive the same figures from what is stored.

    git worktree add --detach ../old 7b09c06 && python benchmarks/compare_figures.py ../old . --data ../old

Each side reads the stored runs and traces of its own checkout, or those of --data. Exit code 1 where a figure differs,
is missing or is new, and nothing here says why.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from figures_of import NUMBER, OF_BYTES, Figures, Readings, figures_of

RENAMED_VALUES = {"specbench.run/1": "specbench.run/2", "specbench.compare/1": "specbench.compare/2"}
RENAMED = {
    "/run/ab/first_manifests/": "/run/ab/sides/",
    r"/run/(sweep|acceptance)(?=[/#]|$)": r"/run/purpose/\1",
    r"(/run/arms/\d+)/config/warmup": r"\1/warmup",
    r"(/run/files/[^/]+)/sha256$": r"\1",
    r"/config/workload/(name|path)$": r"/config/dataset_\1",
    "/config/workload/": "/config/",
}
"""Regular expressions of old paths: the new path."""
_FEW_BLOCKS = "crossover-b[0-9]+-[0-9a-f]{8}"  # stored runs of three blocks
GONE = {
    "/plan/order/": "follows from its seed, which stays",
    r"/run/config/measured_by$|/run/(ab/sides/./)?config/(vocab_size|kind)$": "fields of no use",
    r"/rows/\d+/note(#|$)": "a list of marks in its place",
    r"/index\.html/shows ": "the overview shows TPOT with its interval in place of TPS",
    r"/site\.json/files/shows assets/site\.js$": "a script of another name",
    rf"{_FEW_BLOCKS}\.html/shows 0\.(307|393|511|709)$": "rates of synthetic acceptance stand in a note",
    r"/(results/\d+/reason#0|pair/stdout/notes/0#3)$": "the command that helps stands apart from the reason",
    r"^history/.*/options$": "no options, where there are the run's own now",
}
"""Regular expressions of old paths that were dropped on purpose: why."""
ADDED = {
    r"/run/(results|profile|imported|ab)$|/run/purpose/\w+$": "null: nothing of the kind",
    r"(\.html|/row \d+|/report/stdout)/shows ": "a page or row may show more than it did: same output, marks",
    r"/run/arms/\d+/(graph_parts|engine|imported)$": "facts that runs of other kinds have",
    r"/config/(hf_\w+|dataset_path|engine|engine_startup_timeout|tokenizer|deploy|api_key_env)$": "options since then",
    r"/config/((draft_)?tensor_parallel_size|all_reduce)$|/(num_ranks|num_sums|sum_bytes)$": "several GPUs",
    r"/(config|sampling)/(stop|edits|\w+_penalty|min_\w+|logit_bias|(banned|allowed)_token_ids|bad_words)(/|$)": (
        "ways of sampling since then"
    ),
    r"/show/stdout/roofline(/|$)|/ideal/limits_ms/": "the ideal round, and by limit",
    r"/points/\d+/goodput$|/model/arithmetic$": "goodput; the arithmetic of products",
    r"/config/arms/\d+/engine_name$|/driven(_otherwise)?$": "which engine served an arm, and how it was driven",
    r"/config/temperature_grid(/|$)": "grids of temperatures",
    r"/(config|sampling)/(prompt_)?logprobs$|/config/num_clients$": "log-probabilities; load from several processes",
    r"/(layer_bytes|fast_params|experts|expert_bytes)$": "FP8 and mixtures of experts",
    r"^history/.*/(options|decide_by)#\d+$|/results/\d+/reason#\d+$|pair/stdout/notes/\d+#\d+$": (
        "commands that help name model and data"
    ),
    r"/acceptance/groups(/|$)": "acceptance by context and by temperature",
    r"/code_state$|/results_sha256$": "hashes of code and results",
    r"/(page|profile table)/stdout/shows |/told_batch_size$": "profiles say their batch size",
    r"/site\.json/files/shows assets/": "files of the site",
    r"/blocks/\d+/machine/[AB]/(cores|steal|memory_stall|power_limits_w|is_power_capped)$": "what the machine did",
    r"/marks/(length$|\d+)|/points/\d+/doubts/": "marks of rows that cannot be, were disturbed or not warm",
    r"(/blocks/\d+|/spreads)/((ttft|tpot|itl|e2el)_ms[./]p\d+|drafts_per_round|rounds_by_drafts)": "figures since then",
    r"/profile/stdout/(rounds|idle|replays|host_phases|phases|syncs)/": "rounds, replays, lines that waited",
    r"/source/is_command_given$": "whether the user gave a trace's command",
    r"/speedup/method#": "an interval's method says its number of blocks",
    r"/arms/\d+/categories/length$": "acceptance and speed by data set",
}
"""Regular expressions of new paths that were added on purpose: why."""
REDEFINED = {
    r"/speedup/(tpot_ratio_(low|high)$|method#)": "a speed-up's interval is over blocks and prompts, not prompts only",
    rf"{_FEW_BLOCKS}/report/stdout/shows \d\.\d{{3}}$": "the same intervals in reports",
    r"^history/site/.*/crossover\.html/shows \d\.\d\d$": "the same intervals on pages",
    rf"{_FEW_BLOCKS}/compare/.*/(step|tpot|ttft)_ms/(low|high|least_effect|p|p_\w+|verdict|more_pairs)$": (
        "times paired by prompt are tested with what a block's prompts share"
    ),
    rf"{_FEW_BLOCKS}/compare/.*/tokens_per_step/p_holm$": "Holm's correction by their p",
    r"/arms/\d+/marks/length$": "rows have more marks",
    r"/report/stdout/shows 0\.0$": "shares of equal outputs without decimals",
    r"/pair table/stdout/row \d+/shows \+\d{4}$": "changes above 1000% are shown as that",
    r"/page/stdout/cells$|/site\.json/files/length$": "profiles say their batch size; files of the site",
    r"/anatomy\.html/shows [\d.]+$": "phases are drawn so that they add up to the round of the table",
    r"\.html/shows \+\d{3}\.\d$": "changes of 100% and more are shown without decimals",
}
"""Regular expressions of figures that are defined anew since then: why. Where they differ they are counted apart."""
SUMMED_ANEW = (
    r"/points/\d+/ideal/|/show/stdout/(arms|blocks)/\d+/(spreads/)?"
    r"(e2e_per_token_ms|(phases|accounting\.parts)_ms|accounting[./](parts_ms|residual|predicted_tpot_ms)|speedup/tpot_ratio)"
)
"""Regular expression of figures that are summed in another order (since cbc7357 on arrays): last digits may differ."""

# How both sides are asked.
_SHOWN = (("show", "show {run} --format json"), ("report", "show {run} --format md"))
_JUDGED = ("{run}/ab.json", "{run}/ab.md")
_GATE = "gate {run} --policy policy.toml"
READINGS: Readings = {
    "run": (*_SHOWN, ("compare", "compare {run} --format json")),
    "experiment": (("judge", "ab --resume {run} --format json -q", *_JUDGED),),
    "noise": (("noise", "power --resume {run} --format json -q", *_JUDGED, "{run}/noise.json"),),
    "gates": (
        ("gate", f"{_GATE} --format json"),
        ("junit", f"{_GATE} --junit {{out}}/j.xml --comment {{out}}/c.md", "{out}/j.xml", "{out}/c.md"),
    ),
    "pair": (
        ("pair", "compare {base} {run} --format json --allow-mismatch"),
        ("pair table", "compare {base} {run} --format md --allow-mismatch"),
        ("gate pair", "gate {run} --against {base} --policy policy.toml --format json --allow-mismatch"),
    ),
    "sweep": _SHOWN,
    "trace": (
        ("profile", "profile import {trace} -f json"),
        ("profile table", "profile import {trace} -f md"),
        ("page", "profile import {trace} -f html"),
    ),
    "history": (
        ("add", "history add history commits/*"),
        ("steps", "history show history --format json"),
        ("suspects", "history suspects history --format json"),
        ("site", "report history -o {out}/site", "{out}/site/*.html"),
    ),
    "all": (("site", "report runs/* -o {out}/site", "{out}/site/**/*.html", "{out}/site/site.json"),),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="CHECKOUT", help="whose stored runs both sides read")
    parser.add_argument("old", type=Path, metavar="OLD", help="a checkout of commit 7b09c06")
    parser.add_argument("new", type=Path, metavar="NEW", help="a checkout")
    options = parser.parse_args()
    before = {kind: tuple((n, _as_before(c), *files) for n, c, *files in some) for kind, some in READINGS.items()}
    old = figures_of(options.old, options.data or options.old, before)
    return compare(old, figures_of(options.new, options.data or options.new, READINGS))


def _as_before(command: str) -> str:
    """As commit 7b09c06 spells the command."""
    if command.startswith(("compare", "profile")):
        return command
    return command.replace("--format json", "--json").replace("--format md", "--markdown")


def compare(old: Figures, new: Figures) -> int:
    """Prints every difference and their number; the exit code."""
    of_bytes = {path for path, value in new.items() if value == OF_BYTES}
    of_bytes |= {path for path, value in old.items() if value == OF_BYTES}
    old = {_renamed(path): RENAMED_VALUES.get(str(value), value) for path, value in old.items()}
    old, new = (_shown(figures) for figures in (old, new))
    old, new = ({p: v for p, v in f.items() if p.partition("#")[0] not in of_bytes} for f in (old, new))
    both = old.keys() & new.keys()
    changed = {p for p in both if not _is_same(p, old[p], new[p])}
    gone, added = old.keys() - both, new.keys() - both
    anew = Counter(why for p in changed | gone if (why := _reason(p, REDEFINED)))
    dropped = Counter(why for p in gone if (why := _reason(p, GONE)))
    more = Counter(why for p in added if (why := _reason(p, ADDED)))
    differences = [f"gone: {p}: {old[p]!r}" for p in gone if not _reason(p, GONE) and not _reason(p, REDEFINED)]
    differences += [f"new: {p}: {new[p]!r}" for p in added if not _reason(p, ADDED)]
    differences += [f"changed: {p}: {old[p]!r} -> {new[p]!r}" for p in changed if not _reason(p, REDEFINED)]
    print(*sorted(differences), sep="\n", end="\n" if differences else "")
    num_anew = sum(bool(_reason(p, REDEFINED)) for p in changed)
    print(f"{len(both) - num_anew} figures compared, {len(differences)} differences")
    for name, counts in (("defined anew since", anew), ("dropped on purpose", dropped), ("added on purpose", more)):
        print(f"{counts.total()} {name}{':' if counts else ''}")
        print("".join(f"{count:>8}  {why}\n" for why, count in counts.most_common()), end="")
    return int(bool(differences) or not both)


def _reason(path: str, table: Mapping[str, str]) -> str:
    """Empty where the table says nothing of it."""
    return next((why for pattern, why in table.items() if re.search(pattern, path)), "")


def _shown(figures: Figures) -> Figures:
    """A page is the set of numbers in its tables and charts, a row of Markdown that of its cells, a list of files that
    of its names: where they are is a matter of layout."""
    shown: Figures = {}
    for path, value in figures.items():
        page, is_page, place = path.partition(".html/")
        row = re.fullmatch(
            r"(.*/(?:page|profile table|report)/stdout|.*/row \d+)(?:/(?:cell|row) \d+)?#\d+|(.*/site\.json/files)/\d+",
            path,
        )
        if row:
            shown[f"{row[1] or row[2]}/shows {value}"] = True
        elif not is_page:
            shown[path] = value
        elif (
            isinstance(value, (int, float)) and not isinstance(value, bool) and not place.endswith(("cells", "length"))
        ):
            shown[f"{page}.html/shows {value:.9g}"] = True
        elif isinstance(value, str) and NUMBER.fullmatch(value):
            shown[f"{page}.html/shows {value}"] = True
    return shown


def _renamed(path: str) -> str:
    for pattern, new in RENAMED.items():
        path = re.sub(pattern, new, path)
    return path


def _is_same(path: str, a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float) and re.search(SUMMED_ANEW, path):
        return math.isclose(a, b, rel_tol=1e-12)
    return a == b or (a != a and b != b)  # not a number, twice


if __name__ == "__main__":
    sys.exit(main())
