"""The environment of a measurement: hardware, software versions, git state, thread counts, load."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

import psutil

from specbench.harness.store.code_state import code_state


@dataclass(frozen=True, kw_only=True, slots=True)
class GitState:
    """Commit of the specbench checkout, and whether its working tree differs. `changes`: hash of the code with local
    changes, so that runs of one commit with different ones are told apart; empty: no changes; None: unknown, as in
    older records."""

    sha: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    changes: str | None = None

    def describe(self) -> str:
        changes = f" with local changes{f' ({self.changes})' if self.changes else ''}"
        return f"{self.sha or 'no commit'}{changes if self.dirty else ''}"

    @property
    def revision(self) -> str:
        """The commit, for local changes with `+` and their hash if it is known; empty without a commit."""
        return f"{self.sha}{f'+{self.changes or str()}' if self.dirty else ''}" if self.sha else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cpu:
    model: str | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    flags: tuple[str, ...] = ()
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    name: str
    memory_bytes: int | None = None
    driver: str | None = None
    max_sm_clock_mhz: float | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    cpu: Cpu | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    python: str | None = None
    os: str | None = None
    packages: Mapping[str, str | None] = field(default_factory=dict)
    torch_cuda: str | None = None
    torch_cuda_devices: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Threads:
    torch_intra_op: int | None = None
    torch_inter_op: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Contains nothing that identifies the machine or a user. Unknown values are None."""

    hardware: Hardware | None = None
    software: Software | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    threads: Threads | None = None
    load_average: tuple[float, ...] | None = None

    def describe_hardware(self) -> str:
        """One line for the footer of a table: `1x NVIDIA H200, Intel Xeon ... (16 cores)`."""
        hardware = self.hardware or Hardware()
        counts = Counter(gpu.name for gpu in hardware.gpus)
        parts = [f"{count}x {name}" for name, count in counts.items()]
        if hardware.cpu is not None:
            parts.append(f"{hardware.cpu.model or 'unknown CPU'} ({hardware.cpu.logical_cores} logical cores)")
        return ", ".join(parts) or "unknown hardware"


_PACKAGES = (
    "specbench-harness torch triton flashinfer-python flash-attn transformers numpy pandas pyarrow scipy".split()
)
_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "asimd", "bf16")
# An allow-list: an environment may contain secrets, and run directories are meant to be shared.
_ENV_NAMES = (
    "CUDA_VISIBLE_DEVICES CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING OMP_NUM_THREADS "
    "MKL_NUM_THREADS OPENBLAS_NUM_THREADS KMP_AFFINITY PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF "
    "TORCHINDUCTOR_MAX_AUTOTUNE NVIDIA_TF32_OVERRIDE TRITON_INTERPRET TRITON_DEBUG TRITON_ALWAYS_COMPILE "
    "TRITON_F32_DEFAULT TRITON_DEFAULT_FP_FUSION"
).split()
_GPU_QUERY = ("name", "memory.total", "driver_version", "clocks.max.sm", "power.limit")


def collect_environment() -> Environment:
    """Hardware, software, allowed environment variables, threads and load. Imports torch."""
    import torch

    from specbench.kernels import compiled, cuda_source

    # Every GPU the driver shows, regardless of CUDA_VISIBLE_DEVICES; none without a driver.
    gpus = _output(["nvidia-smi", f"--query-gpu={','.join(_GPU_QUERY)}", "--format=csv,noheader,nounits"])
    return Environment(
        hardware=Hardware(cpu=_cpu(), gpus=parse_gpus(gpus or "")),
        software=Software(
            python=platform.python_version(),
            os=f"{platform.system()} {platform.release()}",
            packages={
                **{name: installed_version(name) for name in _PACKAGES},
                "C compiler": compiled.compiler(),
                "CUDA compiler": cuda_source.compiler(),
            },
            torch_cuda=torch.version.cuda,
            torch_cuda_devices=torch.cuda.device_count(),
        ),
        env=allowed_variables(os.environ),
        threads=Threads(torch_intra_op=torch.get_num_threads(), torch_inter_op=torch.get_num_interop_threads()),
        load_average=os.getloadavg() if hasattr(os, "getloadavg") else None,
    )


def allowed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that may be recorded."""
    return {k: v for k, v in sorted(environ.items()) if k in _ENV_NAMES}


def git_state(directory: Path | None = None) -> GitState | None:
    """Commit of the specbench checkout and whether the working tree differs; None outside a checkout or without git.

    An installed copy may lie inside another project's repository, whose commit says nothing about this code.
    """
    where = directory or Path(__file__).resolve().parent
    root = _output(["git", "-C", str(where), "rev-parse", "--show-toplevel"])
    project = Path(root) / "pyproject.toml" if root else None
    said = project.read_text(encoding="utf-8", errors="replace") if project and project.is_file() else ""
    if project is None or 'name = "specbench-harness"' not in said:
        return None
    status = _output(["git", "-C", str(where), "status", "--porcelain"])
    changes = code_state(project.parent) if status else status
    return GitState(
        sha=_output(["git", "-C", str(where), "rev-parse", "--verify", "-q", "HEAD"]),
        branch=_output(["git", "-C", str(where), "branch", "--show-current"]),
        dirty=None if status is None else status != "",
        changes=changes,
    )


def _output(command: list[str]) -> str | None:
    """What a command prints, stripped; None if it does not exist, fails or hangs. Names need not be UTF-8."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=15, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu() -> Cpu:
    info = Path("/proc/cpuinfo")  # only on Linux
    first = info.read_text(errors="replace").split("\n\n")[0] if info.exists() else ""
    pairs = (line.partition(":") for line in first.splitlines())
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    return Cpu(
        model=fields.get("model name") or platform.processor() or platform.machine(),
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(logical=True),
        usable_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        flags=tuple(flag for flag in _CPU_FLAGS if flag in flags),
        memory_bytes=psutil.virtual_memory().total,
    )


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Parses nvidia-smi's CSV, one GPU per line; unknown values (`[N/A]`) become None."""
    gpus = []
    for line in filter(None, text.splitlines()):
        name, memory_mib, driver, clock_mhz, power_w = (word.strip() for word in line.split(","))
        memory = _number(memory_mib)
        gpus.append(
            Gpu(
                name=name,
                memory_bytes=None if memory is None else int(memory * 2**20),
                driver=driver,
                max_sm_clock_mhz=_number(clock_mhz),
                power_limit_w=_number(power_w),
            )
        )
    return tuple(gpus)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@cache  # 1.5 ms each
def installed_version(package: str) -> str | None:
    """None: run from a checkout without installation, or the package is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
