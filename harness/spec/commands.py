"""Options of the other commands: mostly those of a run, some with different defaults."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from .conditions import Conditions
from .fields import Options, all_but, changed, option
from .options import OutputOptions, RunOptions

_swept = partial(option, group="The sweep")
_arms = partial(option, group="Arms")
_sampling = partial(option, group="Sampling")
_ARM = "An arm, as in `specbench run`. Repeatable"


@dataclass(frozen=True, kw_only=True)
class SweepOptions(RunOptions):
    """Options of `specbench sweep`."""

    EXCLUDED: ClassVar[frozenset[str]] = frozenset(
        "recipe base ablate batch_sizes max_concurrency request_rate burstiness k num_steps".split()
    )

    strategy: tuple[str, ...] = changed(
        RunOptions,
        "strategy",
        help="A strategy, as in `specbench run`; with k=... only this number of drafts is measured. Repeatable. "
        "Each engine's no-spec is always added. Default: those of `run`.",
        group="The sweep",
    )
    num_drafts: str = _swept("1,2,4", "Drafts per round (k) of every strategy that does not set it, as 1,2,4.")
    loads: str = _swept(
        "1,4,16",
        "Concurrencies to measure, as 1,4,16: one run each, with all arms interleaved.",
        flags="--max-concurrency --batch-sizes",
    )
    dry_run: bool = option(False, "Print the points and arms without measuring.")
    label: str = changed(OutputOptions, "label", "sweep")


@dataclass(frozen=True, kw_only=True)
class AbOptions(OutputOptions):
    """Options of `specbench ab`, in addition to those of a run."""

    WITH_RESUME: ClassVar[tuple[str, ...]] = ("resume", "format", "quiet", "progress", "strict")

    a: str = option(
        "", "An arm, options of `specbench run`, or both; ref:REVISION in front runs that revision.", flags="--a -A"
    )
    b: str = option("", "The other side, in the same form.", flags="--b -B")
    ref_a: str | None = option(None, "Run A from this git revision of the checkout.")
    ref_b: str | None = option(None, "Run B from this git revision.")
    checkout: str | None = option(None, "Checkout that holds the revisions; default: the one this command runs from.")
    blocks: int = option(10, "Pairs of runs, one of each side; a verdict takes 6.")
    no_verdict: bool = option(False, "Allow fewer blocks than a verdict takes.")
    min_effect: str = option("1%", "The smallest change that matters.")
    in_process: bool = option(
        False, "Alternate in one process, where start-up is slow, instead of one process per block."
    )
    order_seed: int = option(42, "Seed for which side goes first in each block.")
    min_same_output: str = option("0%", "Share of outputs that must be identical on both sides, else exit code 6.")
    allow_mismatch: bool = option(False, "Compare even if prompts, sampling or load differ.")
    strict: bool = option(False, "Exit code 3 if the verdict is inconclusive.")
    label: str = changed(OutputOptions, "label", "ab")


@dataclass(frozen=True, kw_only=True)
class PowerOptions(AbOptions):
    """Options of `specbench power`: an A/B with identical sides."""

    EXCLUDED: ClassVar[frozenset[str]] = frozenset(
        "a b ref_a ref_b checkout blocks no_verdict min_effect min_same_output allow_mismatch strict".split()
    )

    aa: int | None = option(None, "Number of A/A blocks to measure; 10 or more give a good estimate.")
    label: str = changed(OutputOptions, "label", "power")


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(RunOptions):
    """Options of `specbench profile run`."""

    EXCLUDED: ClassVar[frozenset[str]] = frozenset(
        "resume ranges goodput accuracy accuracy_num_fewshot accuracy_include_path certify_graphs".split()
    )

    tool: str = option("auto", "nsys, torch (torch.profiler) or auto: nsys if there is a GPU and nsys is on the PATH.")
    rounds: int = option(50, "Steady decode rounds in the trace, after warm-up.", unit="rounds")
    rules: Path | None = option(
        None,
        "TOML with your own rules for range names and attention kernels; they come before the built-in ones.",
        metavar="FILE",
    )
    claim: tuple[str, ...] = option(
        (),
        "What should run from CUDA graphs in another engine: verify, drafter, or its first or later passes; full "
        "or piecewise. Repeatable.",
        metavar="PART=MODE",
    )
    print_command: bool = option(False, "Print the full command of every arm without running it.")
    no_twin: bool = option(False, "Skip the same rounds without a profiler; the slow-down is then unknown.")
    label: str = changed(OutputOptions, "label", "profile")


@dataclass(frozen=True, kw_only=True)
class CertifyOptions(RunOptions):
    """Options of `specbench certify`."""

    EXCLUDED: ClassVar[frozenset[str]] = all_but(
        RunOptions,
        "strategy model engine tokenizer api_key_env python ref command url engine_startup_timeout load_format head "
        "dataset_name dataset_path num_prompts output_len max_model_len max_concurrency seed dtype device attention "
        "tensor_parallel_size draft_tensor_parallel_size all_reduce output_dir label format quiet progress",
    )

    strategy: tuple[str, ...] = changed(RunOptions, "strategy", help=f"{_ARM}; each engine's no-spec is always added.")
    cover: str | None = _arms(
        None,
        "Instead of --strategy: at most 34 arms that cover every legal pair of switch values on this machine.",
        metavar="pairwise",
    )
    run: Path | None = _arms(
        None,
        "Certify the arms and prompts of a stored run, and mark failures in its tables; or resume an interrupted "
        "certificate.",
        metavar="RUN",
    )
    dataset_name: str = changed(Conditions, "dataset_name", "sharegpt-held-out", help="As in `specbench run`.")
    num_prompts: int = changed(Conditions, "num_prompts", 50)
    output_len: int | None = changed(Conditions, "output_len", 64, help="Most output tokens per prompt.")
    temperatures: tuple[float, ...] = _sampling(
        (0.0, 0.8),
        "Repeatable. Default: 0 and 0.8. Above 0 all arms sample with the same noise; other engines are judged at 0.",
        flags="--temperature",
    )
    num_seeds: int = _sampling(
        400, "Seeds of the distribution test at each temperature above 0, at least 50; 0: none.", unit="seeds"
    )
    max_concurrency: int = changed(Conditions, "max_concurrency", 8)
    num_repeats: int = changed(Conditions, "num_repeats", 1)
    label: str = changed(OutputOptions, "label", "certify")


@dataclass(frozen=True, kw_only=True)
class AccuracyOptions(OutputOptions, Conditions):
    """Options of `specbench accuracy`. Spellings with underscores are lm-eval's."""

    EXCLUDED: ClassVar[frozenset[str]] = all_but(
        Conditions,
        "model engine tokenizer api_key_env dtype device max_concurrency max_model_len seed warmup_max_s "
        "engine_startup_timeout",
    )

    strategy: tuple[str, ...] = changed(
        RunOptions, "strategy", help=f"{_ARM}. Default: no-spec and ngram; of a running server what it serves."
    )
    python: str | None = changed(RunOptions, "python")
    ref: str | None = changed(RunOptions, "ref")
    command: str | None = changed(RunOptions, "command")
    url: str | None = changed(RunOptions, "url")
    tasks: str = option("gsm8k", "lm-eval task names, separated by commas; NAME:LIMIT sets a limit for one task.")
    num_fewshot: int | None = option(
        None, "Few-shot examples. Default: the task's.", flags="--num-fewshot --num_fewshot"
    )
    limit: int | None = option(None, "Only the first N items of each task. Default: all.", unit="items")
    apply_chat_template: bool = option(
        False, "Use the model's chat template.", flags="--apply-chat-template --apply_chat_template"
    )
    gen_kwargs: str | None = option(
        None, "Replace the task's generation options, as max_gen_toks=128.", flags="--gen-kwargs --gen_kwargs"
    )
    include_path: str | None = option(
        None, "A folder of your own lm-eval tasks.", flags="--include-path --include_path"
    )
    gsm8k_path: str | None = option(None, "Your file of GSM8K test rows.")
    fewshot_path: str | None = option(None, "Your file of GSM8K train rows, for the few-shot examples.")
    max_concurrency: int = changed(
        Conditions, "max_concurrency", 8, flags=("--max-concurrency", "--batch-size", "--batch_size")
    )
    num_repeats: int = changed(Conditions, "num_repeats", 1)
    label: str = changed(OutputOptions, "label", "accuracy")


@dataclass(frozen=True, kw_only=True)
class CheckHeadOptions(Options):
    """Options of `specbench check-head`."""

    target: str = changed(Conditions, "model", help="The model that the head drafts for.")
    evaluate: int = option(
        0, "Also measure acceptance over this many prompts of each workload; 0: do not.", unit="prompts", least=0
    )
    workload: tuple[str, ...] = option(
        ("sharegpt-held-out", "gsm8k"),
        "For --evaluate: NAME, several NAMEs separated by commas, or NAME=PATH. Each is evaluated on its own, several "
        "also together. Default: sharegpt-held-out and gsm8k. Repeatable.",
        flags="--workload --dataset-name",
    )
    temperatures: tuple[float, ...] = option(
        (0.0,), "Temperatures for --evaluate. Repeatable. Default: 0.", flags="--temperature"
    )
    output_len: int = changed(Conditions, "output_len", 256, group="", help="Most output tokens for --evaluate.")
    k: int = option(4, "Drafts per round.")
    seed: int = changed(Conditions, "seed")
    write: bool = option(False, "Store the evaluation next to the head and rewrite its model card.")
    dtype: str = changed(Conditions, "dtype")
    device: str = changed(Conditions, "device")
    format: str = changed(OutputOptions, "format")

    @property
    def workloads(self) -> tuple[str, ...]:
        """Each NAME and NAME=PATH on its own: a path may have commas."""
        return tuple(name.strip() for text in self.workload for name in ([text] if "=" in text else text.split(",")))

    def __post_init__(self) -> None:
        super().__post_init__()
        given = f"workload: {', '.join(map(repr, self.workload))}"
        if not all(self.workloads):
            raise ValueError(f"{given} has an empty item; allowed: NAME, NAME,NAME or NAME=PATH")
        if twice := [name for name in self.workloads if self.workloads.count(name) > 1]:
            raise ValueError(f"{given} has {twice[0]!r} twice; allowed: each once")
