"""Profiles an arm: runs a process under a profiler, redacts, stores and analyses its trace, and runs an unprofiled twin
for the slow-down.

    <run>/profile/<arm>/job.json command.txt log.txt engine.json nodes.json trace.sqlite|trace.json.gz profile.json

Nothing here measures speed: a run directory of this kind has no tables of requests or steps.
"""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from specbench.harness.spec.conditions import RunConfig
from specbench.harness.text import distinct_slug

from .job import ChildReport, Job, read_error
from .node_map import FILE as NODES
from .node_map import read_node_maps
from .nsys_command import exported, find_nsys, nsys_argv, tail
from .profile_file import write_profile
from .ranks import RankProfiles, rank_profiles, rank_trace
from .record import Profile, SlowDown
from .rules import PhaseRules

FOLDER = "profile"
TOOLS = ("auto", "nsys", "torch")
NSYS_TRACE = "trace.sqlite"
TORCH_TRACE = "trace.json.gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracing:
    """twin: whether the same rounds also run without a profiler. claims: modes by part, in addition to those that an
    arm makes itself. ValueError for too few rounds."""

    tool: str
    num_rounds: int
    rules: PhaseRules
    twin: bool
    claims: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.tool not in TOOLS:
            raise ValueError(f"tool: {self.tool!r} is not known; allowed: {', '.join(TOOLS)}")
        if self.num_rounds < 3:
            raise ValueError(f"rounds: {self.num_rounds} is not allowed; allowed: 3 or more (two are edges)")

    def nsys(self, device: str, num_ranks: int = 1) -> str | None:
        """Path of the nsys to use for runs on that device; None for torch.profiler, which several ranks use. ValueError
        if it cannot be used."""
        if num_ranks > 1:
            if self.tool == "nsys":
                raise ValueError("tool: nsys is not allowed with several ranks; each traces itself: use --tool torch")
            return None
        if self.tool == "nsys" and device != "cuda":
            raise ValueError(f"tool: nsys traces a GPU, and the device is {device}; use --tool torch")
        nsys = None if self.tool == "torch" or device != "cuda" else find_nsys()
        if self.tool == "nsys" and nsys is None:
            raise ValueError(
                "tool: nsys is not on the PATH; install NVIDIA Nsight Systems and put nsys on the PATH, or use --tool "
                "torch"
            )
        return nsys


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmProfile:
    """The result of one arm. `profile` is None without a GPU if the engine's own clock is better than a trace,
    `slow_down` if no unprofiled rounds were run, `ranks` for a single process."""

    report: ChildReport
    profile: Profile | None
    slow_down: SlowDown | None
    ranks: RankProfiles | None = None


def arm_folder(label: str) -> str:
    """A folder name for any label."""
    return distinct_slug(label, "arm")


def printed_command(config: RunConfig, tool: str, num_rounds: int, folder: Path) -> list[str]:
    """The whole command for a config of one arm, with its job written to a file, to be run by hand."""
    trace = None if tool == "nsys" else folder / TORCH_TRACE
    program = _program(Job(config=config, tool=tool, num_rounds=num_rounds, folder=folder, trace=trace).to_json())
    return nsys_argv("nsys", folder / "trace", program) if tool == "nsys" else program


def _program(job: str, python: str = "python") -> list[str]:
    return [python, "-m", "specbench.harness.profiling.child", job]


def profile_arm(
    config: RunConfig, tracing: Tracing, nsys: str | None, folder: Path, say: Callable[[str], None]
) -> ArmProfile:
    """Profiles the config's only arm. `folder` is created and filled.

    Raises ValueError, reported by the process, for what the user can fix before anything is profiled, and RuntimeError
    for everything else that goes wrong; the log is in the folder.
    """
    label = config.arms[0].label
    with tempfile.TemporaryDirectory(prefix="specbench-profile-") as name:
        scratch = Path(name)
        say(f"{label}: {tracing.num_rounds} rounds under {'nsys' if nsys else 'torch.profiler'}")
        trace, report = _trace(config, tracing.num_rounds, nsys, folder, scratch)
        slow_down = _beside(report)
        if tracing.twin and slow_down is None:
            say(f"{label}: the same rounds without a profiler")
            job = Job(config=config, tool="none", num_rounds=tracing.num_rounds, folder=scratch / "twin")
            _run(job, None, scratch)
            unprofiled_ns = ChildReport.read(job.folder).rounds.median_ns
            slow_down = SlowDown(profiled_round_ns=report.rounds.median_ns, unprofiled_round_ns=unprofiled_ns)
    profile, ranks = None, None
    if report.device == "cuda" or not report.rounds.host_phases_ns:
        say(f"{label}: analysing the trace")
        claims = {**report.subject.claimed_parts, **tracing.claims}
        report = dataclasses.replace(report, subject=dataclasses.replace(report.subject, claimed_parts=claims))
        profile = dataclasses.replace(_analysed(trace, report, tracing.rules), slow_down=slow_down)
        write_profile(profile, folder)
        if config.tensor_parallel_size > 1:
            of_others = [rank_trace(trace, rank) for rank in range(1, config.tensor_parallel_size)]
            ranks = rank_profiles([profile, *(_analysed(each, report, tracing.rules) for each in of_others)])
            ranks.write(folder)
    return ArmProfile(report=report, profile=profile, slow_down=slow_down, ranks=ranks)


def _beside(report: ChildReport) -> SlowDown | None:
    """From the rounds before the profiler in the same process, if there were any."""
    if not report.rounds.unprofiled_ns:
        return None
    unprofiled_ns = float(median(report.rounds.unprofiled_ns))
    return SlowDown(profiled_round_ns=report.rounds.median_ns, unprofiled_round_ns=unprofiled_ns)


def _trace(
    config: RunConfig, num_rounds: int, nsys: str | None, folder: Path, scratch: Path
) -> tuple[Path, ChildReport]:
    """Writes the redacted trace into `folder`; returns it, and what its process reports."""
    from .redact import redact

    raw = None if nsys else scratch / TORCH_TRACE
    job = Job(config=config, tool="nsys" if nsys else "torch", num_rounds=num_rounds, folder=folder, trace=raw)
    shown, log = _run(job, nsys, scratch)
    if raw is not None and not raw.is_file():
        raise RuntimeError(f"torch.profiler left no trace. The process said: {tail(log)}")
    trace = folder / (TORCH_TRACE if raw else NSYS_TRACE)
    redact(raw or exported(scratch / "trace", log), trace)
    for rank in range(1, config.tensor_parallel_size):
        redact(rank_trace(scratch / TORCH_TRACE, rank), rank_trace(trace, rank))
    report = ChildReport.read(folder)
    subject = dataclasses.replace(report.subject, profiler_argv=tuple(shown))
    return trace, dataclasses.replace(report, subject=subject)


def _run(job: Job, nsys: str | None, scratch: Path) -> tuple[list[str], str]:
    """Runs the job's process to its end. Returns the command as a reader may repeat it, and the process's output, which
    `log.txt` keeps. Errors as in `profile_arm`."""
    job.folder.mkdir(parents=True)
    file, log = job.folder / "job.json", job.folder / "log.txt"
    file.write_text(job.to_json(), encoding="utf-8")
    program, shown = _program(str(file), sys.executable), _program(str(file))
    if nsys:
        program, shown = nsys_argv(nsys, scratch / "trace", program), nsys_argv("nsys", job.folder / "trace", shown)
    (job.folder / "command.txt").write_text(shlex.join(shown) + "\n", encoding="utf-8")
    with log.open("w", encoding="utf-8") as stream:
        done = subprocess.run(program, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, check=False)
    text = log.read_text(encoding="utf-8", errors="replace")
    error = read_error(job.folder)
    if error is not None:
        raise error if isinstance(error, ValueError) else RuntimeError(f"{error} (traceback: {log})")
    if done.returncode != 0:
        name = "the unprofiled twin" if job.tool == "none" else job.tool
        raise RuntimeError(f"{name} ended with exit code {done.returncode}. It said: {tail(text)}")
    return shown, text


def _analysed(trace: Path, report: ChildReport, rules: PhaseRules) -> Profile:
    from .analysis import analyse_trace
    from .host_trace import analyse_host_trace

    maps = read_node_maps(trace.parent / NODES)
    try:
        if report.device != "cuda":
            return analyse_host_trace(trace, rules=rules, subject=report.subject, notes=report.notes)
        return analyse_trace(trace, rules=rules, node_maps=maps, subject=report.subject, notes=report.notes)
    except ValueError as error:
        raise RuntimeError(f"the trace {trace} cannot be analysed: {error}") from error
