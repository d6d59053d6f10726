"""From an arm to its profile: a process under a profiler, its trace redacted and kept, analysed, and its unprofiled
twin for the slow-down.

    <run>/profile/<arm>/job.json command.txt log.txt engine.json nodes.json trace.sqlite|trace.json.gz profile.json

Nothing here may stand for speed: a run directory of this kind has no tables of requests or steps.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.spec.run_config import RunConfig
from specbench.harness.text import slug

from .job import ChildReport, Job, read_error
from .node_map import FILE as NODES
from .node_map import read_node_maps
from .nsys_command import Nsys, exported, find_nsys, nsys_argv, require_nsys, tail
from .record import Profile, SlowDown, write_profile
from .rules import PhaseRules

FOLDER = "profile"
TOOLS = ("auto", "nsys", "torch")
NSYS_TRACE = "trace.sqlite"
TORCH_TRACE = "trace.json.gz"
NO_GPU = "no GPU: the trace holds what the host did, and there is no graph, launch or kernel to report"
_CHILD = "specbench.harness.profiling.child"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """`nsys`: the one to use; None: torch.profiler. ValueError for rounds that are too few to say anything."""

    num_rounds: int
    nsys: Nsys | None
    rules: PhaseRules
    twin: bool

    def __post_init__(self) -> None:
        if self.num_rounds < 3:
            raise ValueError(f"rounds: {self.num_rounds} is not allowed; must be >= 3 (the first and last are edges)")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmProfile:
    """What came of one arm. `profile` is None without a GPU; `twin`: the unprofiled rounds, if they were run."""

    report: ChildReport
    profile: Profile | None
    slow_down: SlowDown | None


def check_tool(tool: str) -> None:
    if tool not in TOOLS:
        raise ValueError(f"tool: {tool!r} is not known; allowed: {', '.join(TOOLS)}")


def pick_nsys(tool: str, device: str) -> Nsys | None:
    """The nsys that `--tool` means for runs on that device, None for torch.profiler. ValueError where it cannot be."""
    check_tool(tool)
    if tool == "torch":
        return None
    if device != "cuda":
        if tool == "nsys":
            raise ValueError(f"tool: nsys traces a GPU, and the device is {device}; use --tool torch")
        return None
    return require_nsys() if tool == "nsys" else find_nsys()


def arm_folder(label: str) -> str:
    """A folder name for any label: readable, and distinct for labels that differ only in odd characters."""
    return f"{slug(label, 'arm')}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def printed_command(config: RunConfig, tool: str, num_rounds: int, folder: Path) -> list[str]:
    """The whole command for a config of one arm, its job written out, for whoever wants to run it by hand."""
    trace = None if tool == "nsys" else folder / TORCH_TRACE
    program = child_argv(Job(config=config, tool=tool, num_rounds=num_rounds, folder=folder, trace=trace).to_json())
    return nsys_argv("nsys", folder / "trace", program) if tool == "nsys" else program


def child_argv(job: str, python: str = "python") -> list[str]:
    return [python, "-m", _CHILD, job]


def profile_arm(config: RunConfig, settings: Settings, folder: Path, say: Callable[[str], None]) -> ArmProfile:
    """Profiles the config's only arm. `folder` is made and filled.

    Raises ValueError for what the user can mend before anything is profiled (the process said so), RuntimeError for
    everything else that went wrong; the log is in the folder.
    """
    folder.mkdir(parents=True)
    label = config.arms[0].label
    say(f"{label}: {settings.num_rounds} rounds under {'nsys' if settings.nsys else 'torch.profiler'}")
    with tempfile.TemporaryDirectory(prefix="specbench-profile-") as name:
        scratch = Path(name)
        shown = _trace(config, settings, folder, scratch)
        report = ChildReport.read(folder)
        slow_down = None
        if settings.twin:
            say(f"{label}: the same rounds without a profiler")
            slow_down = _slow_down(report, _twin(config, settings, scratch / "twin"))
    if report.device != "cuda":
        return ArmProfile(report=report, profile=None, slow_down=slow_down)
    say(f"{label}: analysing the trace")
    profile = _analysed(folder, report, settings.rules, shown, slow_down)
    return ArmProfile(report=report, profile=profile, slow_down=slow_down)


def _trace(config: RunConfig, settings: Settings, folder: Path, scratch: Path) -> list[str]:
    """Leaves the redacted trace in `folder`; returns the command as a reader may repeat it."""
    from .redact import redact

    raw = scratch / "trace.json.gz"
    tool = "nsys" if settings.nsys else "torch"
    job = Job(
        config=config,
        tool=tool,
        num_rounds=settings.num_rounds,
        folder=folder,
        trace=None if settings.nsys else raw,
    )
    file = folder / "job.json"
    file.write_text(job.to_json(), encoding="utf-8")
    program, shown = child_argv(str(file), sys.executable), child_argv(str(file))
    if settings.nsys:
        program = nsys_argv(settings.nsys.path, scratch / "trace", program)
        shown = nsys_argv("nsys", folder / "trace", shown)
    (folder / "command.txt").write_text(shlex.join(shown) + "\n", encoding="utf-8")
    log = _run(program, folder, tool)
    if settings.nsys:
        redact(exported(scratch / "trace", log), folder / NSYS_TRACE)
    elif not raw.is_file():
        raise RuntimeError(f"torch.profiler left no trace. The process said: {tail(log)}")
    else:
        redact(raw, folder / TORCH_TRACE)
    return shown


def _twin(config: RunConfig, settings: Settings, folder: Path) -> ChildReport:
    folder.mkdir()
    job = Job(config=config, tool="none", num_rounds=settings.num_rounds, folder=folder)
    file = folder / "job.json"
    file.write_text(job.to_json(), encoding="utf-8")
    _run(child_argv(str(file), sys.executable), folder, "the unprofiled twin")
    return ChildReport.read(folder)


def _run(program: Sequence[str], folder: Path, what: str) -> str:
    """Runs a process to its end; what it said, which `log.txt` keeps. Errors as `profile_arm` says."""
    path = folder / "log.txt"
    with path.open("w", encoding="utf-8") as log:
        done = subprocess.run(program, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
    said = path.read_text(encoding="utf-8", errors="replace")
    error = read_error(folder)
    if error is not None:
        if error["is_input"]:
            raise ValueError(error["error"])
        raise RuntimeError(f"{error['type']}: {error['error']} (traceback: {path})")
    if done.returncode != 0:
        raise RuntimeError(f"{what} ended with exit code {done.returncode}. It said: {tail(said)}")
    return said


def _slow_down(profiled: ChildReport, twin: ChildReport) -> SlowDown:
    return SlowDown(
        profiled_round_ns=profiled.rounds.median_ns,
        unprofiled_round_ns=twin.rounds.median_ns,
    )


def _analysed(
    folder: Path, report: ChildReport, rules: PhaseRules, command: Sequence[str], slow_down: SlowDown | None
) -> Profile:
    from .analysis import analyse_trace

    trace = next(path for name in (NSYS_TRACE, TORCH_TRACE) if (path := folder / name).is_file())
    subject = dataclasses.replace(report.subject, profiler_argv=tuple(command))
    try:
        profile = analyse_trace(trace, rules=rules, node_maps=read_node_maps(folder / NODES), subject=subject)
    except ValueError as error:
        raise RuntimeError(f"the trace {trace} cannot be analysed: {error}") from error
    profile = with_notes(dataclasses.replace(profile, slow_down=slow_down), report.notes)
    write_profile(profile, folder)
    return profile


def with_notes(profile: Profile, notes: Sequence[str]) -> Profile:
    quality = dataclasses.replace(profile.quality, notes=(*profile.quality.notes, *notes))
    return dataclasses.replace(profile, quality=quality)
