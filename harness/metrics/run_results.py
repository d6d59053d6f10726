"""The results of a run: derived from its tables, or stored with it."""

from __future__ import annotations

from dataclasses import replace

from specbench.harness.metrics.doubts import with_unrecorded
from specbench.harness.metrics.figures import OWN
from specbench.harness.metrics.metrics import Block, measure_blocks, summarise
from specbench.harness.store.block_records import read_records
from specbench.harness.store.results import Figures, Results, StoredBlock
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_file import DERIVE_AGAIN
from specbench.harness.store.schema import Frames
from specbench.workloads.assets.cache import read_sha256

RULES = 4
"""Version of the rules for spreads, intervals and marks; increased when stored rows would get different ones."""


def results(frames: Frames) -> Results:
    """What `run.json` stores: the summaries of the arms, and the figures of each block."""
    blocks = measure_blocks(frames)
    found = Results(
        rules=RULES,
        arms=summarise(blocks, frames),
        blocks=tuple(StoredBlock(arm=arm, repeat=n, figures=figures) for (arm, n), figures in blocks.items()),
    )
    return with_unrecorded(found, frames.seen)


def results_of(directory: RunDirectory) -> Results:
    """The results that a closed run stored, if its tables still have the hashes stored with them; otherwise they are
    derived again.

    A run that was resumed and killed has newer blocks than its results. Summaries of arms made by other rules are made
    again from the stored figures, and blocks that lost their record since are marked.
    """
    found = _stored_results(directory)
    if found is None:
        return results(directory.frames())
    if found.rules != RULES:
        found = replace(found, rules=RULES, arms=summarise(found.by_block(), directory.frames()))
    return with_unrecorded(found, read_records(directory.path))


def _stored_results(directory: RunDirectory) -> Results | None:
    """None if the tables are not the ones that the results were derived from."""
    stored, files = directory.record.results, directory.record.files
    if stored is None or not files or directory.record.status == "running":
        return None
    tables = {directory.path / name: digest for name, digest in files.items() if name.endswith(".parquet")}
    is_same = all(path.is_file() and read_sha256(path) == digest for path, digest in tables.items())
    return stored if is_same else None


def block_values(directory: RunDirectory, found: Results) -> dict[Block, Figures]:
    """The figures of every block that did not fail, by arm and repeat, in the directory's results. ValueError for a
    stored block that lacks one."""
    blocks = {block: figures.values for block, figures in found.by_block().items()}
    for (arm, repeat), figures in blocks.items():
        # Percentiles of nothing are left out: a block without rounds has no median round.
        needed = {own.block for own in OWN if own.block and not own.block.endswith(".p50")}
        if missing := sorted(needed - figures.keys()):
            where = f"{directory.path}: results: {arm}, repeat {repeat + 1}"
            raise ValueError(f"{where}: {', '.join(missing)} is missing; {DERIVE_AGAIN}")
    return blocks
