"""What two runs must have in common for their figures to be comparable: hardware, workload, sampling."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.store.ab_record import SideRecord
from specbench.harness.store.environment import Cpu, Environment, GitState, Hardware, Software, Threads
from specbench.harness.store.inputs_record import SamplingRecord, WorkloadRecord
from specbench.harness.store.run_record import RunRecord

UNKNOWN = "unknown"
GROUPS = ("hardware", "workload", "sampling")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """One key that differs: `first` is the value of the run that the other is compared with."""

    run: str
    group: str
    key: str
    first: str
    second: str

    def describe(self) -> str:
        return f"{self.group}: {self.key}: {self.first} and {self.second}"


Described = RunRecord | SideRecord
"""What identifies the model, prompts, sampling and machine that figures belong to."""


def comparison_keys(run: Described) -> dict[str, dict[str, str]]:
    """The keys of a run by group, as text; `unknown` if the run does not record them."""
    workload, config = run.workload or WorkloadRecord(), run.config
    sampling = run.sampling or (SamplingRecord.of(config) if config else SamplingRecord())
    return {
        "hardware": _hardware(run.environment),
        "workload": {
            "model": _text(run.model.name if run.model else None),
            "name": _text(workload.name),
            "prompts sha256": _text(workload.sha256)[:12],
            "number of prompts": _text(workload.num_prompts),
            "max concurrency": _text(sampling.max_concurrency),
            "request rate": _text(sampling.request_rate),
            "burstiness": _text(config.burstiness if config else None),
        },
        "sampling": {
            **{n: _text(getattr(sampling, n)) for n in ("temperature", "top_k", "top_p", "ignore_eos", "seed")},
            "changes of logits": sampling.edits or "none",
            "log-probabilities": _logprobs(sampling),
            "stop strings": ", ".join(map(repr, sampling.stop)) or "none",
        },
    }


def _logprobs(sampling: SamplingRecord) -> str:
    requested = {"output": sampling.logprobs, "prompt": sampling.prompt_logprobs}
    return ", ".join(f"{part} {num}" for part, num in requested.items() if num is not None) or "none"


def mismatches(run: str, first: Described, second: Described) -> list[Mismatch]:
    """Where the record `second` (of `run`) differs from `first`, key by key."""
    keys = comparison_keys(first), comparison_keys(second)
    return [
        Mismatch(run=run, group=group, key=key, first=value, second=keys[1][group][key])
        for group in GROUPS
        for key, value in keys[0][group].items()
        if value != keys[1][group][key]
    ]


def same_prompts(first: Described, second: Described) -> bool:
    """Whether requests of both can be paired by prompt: the hash of the exact prompts is known and the same."""
    hashes = [one.workload.sha256 if one.workload else None for one in (first, second)]
    return bool(hashes[0]) and hashes[0] == hashes[1]


def software_changes(first: Described, second: Described) -> list[str]:
    """Versions that differ: not a reason to refuse, since they may be what is compared, but shown."""
    found = [_versions(m) for m in (first, second)]
    names = [*found[0], *(name for name in found[1] if name not in found[0])]
    pairs = ((name, found[0].get(name, UNKNOWN), found[1].get(name, UNKNOWN)) for name in names)
    return [f"{name}: {a} and {b}" for name, a, b in pairs if a != b]


def unknown_groups(run: Described) -> list[str]:
    """Groups in which a run does not record some key, so it is unknown whether it matches."""
    keys = comparison_keys(run)
    required = {"hardware": ("GPU", "CPU"), "workload": ("prompts sha256",), "sampling": ("temperature",)}
    return [group for group, names in required.items() if any(keys[group][name] == UNKNOWN for name in names)]


def _hardware(environment: Environment) -> dict[str, str]:
    hardware = environment.hardware or Hardware()
    cpu, threads = hardware.cpu or Cpu(), environment.threads or Threads()
    names = [gpu.name for gpu in hardware.gpus]
    return {
        "GPU": ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))
        or ("none" if environment.hardware else UNKNOWN),
        "driver": ", ".join(sorted({_text(gpu.driver) for gpu in hardware.gpus})) or "none",
        "power limit W": ", ".join(sorted({_text(gpu.power_limit_w) for gpu in hardware.gpus})) or "none",
        "CPU": _text(cpu.model),
        "CPU cores": _text(cpu.usable_cores or cpu.logical_cores),
        "threads": _text(threads.torch_intra_op),
    }


def _versions(run: Described) -> dict[str, str]:
    software, git = run.environment.software or Software(), run.git or GitState()
    versions = {"specbench commit": git.sha, "local changes": git.changes or git.dirty, "python": software.python}
    versions |= {"CUDA of torch": software.torch_cuda, **software.packages}
    return {name: _text(value) for name, value in versions.items() if value is not None}


def _text(value: str | float | bool | None) -> str:
    return UNKNOWN if value is None else str(value)
