"""Run directories, sweeps, profiles and traces of others, through the commands that open them; and command lines."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import msgspec
from profile_samples import eagle_profile
from run_samples import begun, chain_block
from sweep_samples import stored_sweep
from typer.testing import CliRunner

from fuzz.contained import Broken
from fuzz.mutate import Mutate, mutate_bytes, mutate_json, mutate_packed, mutate_words
from fuzz.targets import Reader, Target
from fuzz.text_targets import POLICIES, ROOT, SERVED
from specbench.harness.cli.main import app
from specbench.harness.exit_codes import ExitCode
from specbench.harness.metrics.run_results import results
from specbench.harness.profiling.profile_file import write_profile
from specbench.harness.store.run_directory import RunDirectory
from specbench.workloads.assets.manifest import Manifest
from specbench.workloads.assets.resolve import from_cache
from specbench.workloads.assets.seal import Seal, check_seals, write_seals

GOLDEN = ROOT / "tests/harness/profiling/golden/eagle"
# No download may succeed, or be tried for long.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "PIP_RETRIES": "0", "https_proxy": "http://127.0.0.1:9"}
_OUTSIDE = re.compile(r"\.\.|(^|[=,:\s-])[/~]|-[a-z]/")  # words that lead out of a folder, also behind an option
TOY = (
    "--load-format dummy --model toy --dtype float32 --dataset-name random --random-input-len 6 --random-output-len 3 "
    "--num-prompts 2 --num-repeats 1 --warmup-max-s 0.01 --max-model-len 32 --output-dir runs"
)
MISSING = "--dataset-name jsonl --dataset-path missing.jsonl"
LINES = (
    f"run {TOY} -s no-spec --label x",
    "show a --format json",
    "compare a b --allow-mismatch",
    "gate a --policy p.toml --against b --junit j.xml --comment c.md",
    "report a b -o site",
    "import r.json -o imported --label x",
    "history add h a b",
    "history show known --metric step_ms --min-effect 2%",
    "profile import trace.json --nodes nodes.json -o kept",
    "profile show profile --format md",
    "list",
)
# Refused for the file that is not there, before anything is measured; changed, mostly for something else.
REFUSED = (
    f"run {TOY} {MISSING} -s eagle:k=2,head=random,acceptance=synthetic:2.0 --max-concurrency 2 --request-rate 50",
    f"run --recipe r.toml {TOY} {MISSING}",
    f"sweep {TOY} {MISSING} -s ngram --num-drafts 1,2 --max-concurrency 1,2",
    f"certify {TOY} {MISSING} -s ngram:k=2 --num-seeds 5 --temperature 0.5",
    f"ab {TOY.replace('--num-repeats 1 ', '')} {MISSING} -A ngram:k=1 -B ngram:k=2 --in-process --min-effect 5%",
    f"power {TOY.replace('--num-repeats 1 ', '')} {MISSING} -s ngram --blocks 8 --in-process",
)


def command(words: Sequence[str], folder: Path) -> None:
    """Runs `specbench` in `folder`. ValueError where it refuses in words; Broken where it does not end as it should."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, {**_OFFLINE, "SPECBENCH_CACHE": str(folder / "cache")}):
            done = CliRunner().invoke(app, list(words), prog_name="specbench")
    finally:
        os.chdir(before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code not in list(ExitCode) or "Traceback" in done.output:
        raise Broken(f"exit code {done.exit_code}: {done.output[-500:]}")
    if done.exit_code == ExitCode.BAD_INPUT:
        if not done.output.strip():  # a group without a command prints its help, on stdout
            raise Broken("exit code 2 without a word")
        raise ValueError(done.stderr)


def run_directory(folder: Path) -> Path:
    """A finished run that is derived again whenever it is read: changed results would be refused for their hash."""
    run = RunDirectory.create(folder, "sample", begun("no-spec", "eagle:k=4"))
    for repeat in range(2):
        run.append("no-spec", repeat, **chain_block([0] * 6, k=0, round_ms=8.0 + repeat * 0.1))
        run.append("eagle:k=4", repeat, **chain_block([4, 0, 2], round_ms=10.0 + repeat * 0.1))
    run.finish(results(run.frames()))
    run.put(replace(run.record, results=None))
    return run.path


def in_run(name: str, words: str, mutate: Mutate, tries: int = 2) -> Target:
    """A file of the run `a` is the input, `words` a command that reads it; what it writes is removed each time."""

    def prepare(folder: Path) -> Reader:
        run_directory(folder / "made").rename(folder / "a")
        run_directory(folder / "made").rename(folder / "b")
        made = [folder / one for one in ("site", "h")]
        return reader(folder, folder / "a" / name, words.split(), made)

    return Target(prepare=prepare, mutate=mutate, starts=True, tries=tries)


def reader(folder: Path, file: Path, words: Sequence[str], made: Sequence[Path]) -> Reader:
    def read() -> None:
        try:
            command(words, folder)
        finally:
            for path in made:
                shutil.rmtree(path, ignore_errors=True)

    return Reader(file=file, seeds=[file.read_bytes()], read=read)


def _kineto() -> dict[str, object]:
    """One round of a real trace, and a few events of the next."""
    trace = json.loads(gzip.decompress((GOLDEN / "trace.json.gz").read_bytes()))
    return {**trace, "traceEvents": trace["traceEvents"][:400]}


def traced(name: str, data: Callable[[], bytes], mutate: Mutate) -> Target:
    def prepare(folder: Path) -> Reader:
        (folder / name).write_bytes(data())
        return reader(folder, folder / name, ["profile", "import", name, "-o", "kept"], [folder / "kept"])

    return Target(prepare=prepare, mutate=mutate, tries=4)


def _history(name: str) -> Target:
    """A file of a history with one run is the input."""

    def prepare(folder: Path) -> Reader:
        run_directory(folder / "made").rename(folder / "a")
        command(["history", "add", "h", "a"], folder)
        command(["history", "show", "h"], folder)
        (file,) = (folder / "h").glob(name)
        return reader(folder, file, ["history", "show", "h", "--format", "json"], [])

    return Target(prepare=prepare, mutate=mutate_json, starts=True, tries=2)


def _cached(folder: Path) -> Reader:
    """asset.json of a cache, and the seals of what was converted from it."""
    kept = folder / "assets" / "x"
    kept.mkdir(parents=True)
    (kept / "d.jsonl").write_bytes(b"{}")
    seal = Seal.of(kept / "d.jsonl")
    made = Manifest(name="x", file="d.jsonl", source="pypi:x", **{f: getattr(seal, f) for f in seal.__struct_fields__})

    def read() -> object:
        with mock.patch.dict(os.environ, {"SPECBENCH_CACHE": str(folder)}):
            return from_cache("x")

    return Reader(file=kept / "asset.json", seeds=[msgspec.json.encode(made)], read=read)


def _sealed(folder: Path) -> Reader:
    (folder / "model.safetensors").write_bytes(b"x")
    write_seals(folder / "seal.json", {"model.safetensors": folder / "model.safetensors"})
    file = folder / "seal.json"
    return Reader(file=file, seeds=[file.read_bytes()], read=lambda: check_seals(file, folder, "fetch it again"))


def _profile(folder: Path) -> Reader:
    file = write_profile(eagle_profile(), folder)
    return reader(folder, file, ["profile", "show", str(file)], [])


def _sweep(folder: Path) -> Reader:
    sweep = stored_sweep(folder / "made").path.rename(folder / "s")
    return reader(folder, sweep / "sweep.json", ["show", "s"], [])


def _command(folder: Path) -> Reader:
    run_directory(folder / "made").rename(folder / "a")
    run_directory(folder / "made").rename(folder / "b")
    (folder / "profile").mkdir()
    write_profile(eagle_profile(), folder / "profile")
    (folder / "p.toml").write_bytes(POLICIES[0])
    (folder / "r.json").write_text(json.dumps(SERVED))
    (folder / "trace.json").write_text(json.dumps(_kineto()))
    shutil.copy(GOLDEN / "nodes.json", folder)
    (folder / "r.toml").write_text('summary = "x"\n[run]\nnum_repeats = 1\n[[arm]]\nstrategy = "no-spec"\n')
    command(["history", "add", "known", "a"], folder)
    kept = {*folder.iterdir(), folder / "words"}

    def read() -> None:
        words = (folder / "words").read_bytes().decode(errors="replace").split("\0")
        if any(_OUTSIDE.search(word) for word in words):
            raise ValueError("what a person types may lead anywhere, so that it is not tried")
        try:
            command(words, folder)
        finally:
            for path in {*folder.iterdir()} - kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    seeds, refused = ([line.replace(" ", "\0").encode() for line in lines] for lines in (LINES, REFUSED))
    return Reader(file=folder / "words", seeds=seeds, refused=refused, read=read)


RECORDS: Mapping[str, Target] = {
    "run-show": in_run("run.json", "show a", mutate_json),
    "run-compare": in_run("run.json", "compare b a --allow-mismatch", mutate_json),
    "run-report": in_run("run.json", "report a b -o site", mutate_json, tries=1),
    "run-history": in_run("run.json", "history add h a", mutate_json),
    "run-requests": in_run("requests.parquet", "show a", mutate_bytes),
    "run-steps": in_run("steps.parquet", "show a", mutate_bytes),
    "history-run": _history("runs/*/run.json"),
    "history-index": _history(".index.json"),
    "asset": Target(prepare=_cached, mutate=mutate_json),
    "seals": Target(prepare=_sealed, mutate=mutate_json),
    "sweep": Target(prepare=_sweep, mutate=mutate_json, starts=True, tries=2),
    "profile": Target(prepare=_profile, mutate=mutate_json, tries=4),
    "kineto": traced("trace.json", lambda: json.dumps(_kineto()).encode(), mutate_json),
    "kineto-packed": traced("trace.json.gz", lambda: gzip.compress(json.dumps(_kineto()).encode()), mutate_packed),
    "nsys": traced("trace.sqlite", lambda: lzma.decompress((GOLDEN / "trace.sqlite.xz").read_bytes()), mutate_bytes),
    "command": Target(prepare=_command, mutate=mutate_words, starts=True, tries=3),
}
