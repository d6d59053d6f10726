"""The options of a run: one schema for the command line, recipes, sweeps, sides of an A/B and the Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from specbench.harness.stats.slos import Slos, parse_slos
from specbench.harness.text import check_label, parse_count

from .arm import ENGINE_KEYS, STRATEGY_KEYS, Switches
from .choices import ALLOWED, PART_MODES
from .conditions import Conditions
from .fields import Options, Value, changed, option
from .recipe_files import Base, Recipe, load_base, load_recipe

GROUPS = (
    *("Head", "Arms", "The sweep", "Model", "Prompts", "Load", "Sampling", "Measurement", "Switches of all arms"),
    *("Other engines", "Limits", "Responses", "Training", "", "Output"),
)  # in the order of the help
_NOT_IN_FILES = ("Arms", "Output")  # groups of options that a recipe cannot give
_output = partial(option, group="Output")
_arms = partial(option, group="Arms")
_measurement = partial(option, group="Measurement")
_switch = partial(option, None, group="Switches of all arms")
_engine = partial(option, None, group="Other engines")
_WORDS = {name: ", ".join(words) for name, words in {**ALLOWED, **PART_MODES}.items()}
AnyOutput = TypeVar("AnyOutput", bound="OutputOptions")


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """Where results go and how they are printed. `given`: the options that the user set."""

    # Options that --resume may be combined with.
    WITH_RESUME: ClassVar[tuple[str, ...]] = ("resume", "format", "quiet", "progress")

    output_dir: Path = _output(Path("runs"), "Parent of the result directory.", flags="--output-dir -o")
    label: str = _output("run", "Word in the name of the result directory: up to 50 of a-z, A-Z, 0-9, . _ = and -.")
    resume: Path | None = _output(None, "Directory to resume, with its own options.", metavar="DIR")
    format: str = _output(
        "table", "table, or json: everything, on stdout.", choices=("table", "json"), flags="--format -f"
    )
    quiet: bool = _output(False, "No progress on stderr.", flags="--quiet -q")
    progress: str = _output(
        "auto",
        "auto: bars on a terminal, lines elsewhere; lines; json: an object a line; none. On stderr.",
        choices=("auto", "lines", "json", "none"),
    )
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_label(self.label)

    @classmethod
    def of(cls: type[AnyOutput], named: Mapping[str, Value]) -> AnyOutput:
        return cls(**named, given=frozenset(named))  # type: ignore[arg-type]

    def check_alone(self, thing: str, words: Sequence[str] = ()) -> None:
        """A resumed directory has its own options: any others next to --resume would be ignored, so they are refused.

        `words`: further options, of commands that pass them on.
        """
        schema = self.schema()
        given = sorted(schema[name].flag for name in self.given if name not in self.WITH_RESUME)
        if given or words:
            drop = " ".join([*given, *words]) if words else ", ".join(given)
            raise ValueError(f"resume: {thing} resumes with its own options; drop {drop}")


@dataclass(frozen=True, kw_only=True)
class RunOptions(OutputOptions, Conditions):
    """The options of `specbench run`. Other commands take most of them (`EXCLUDED` lists the rest), some with different
    defaults (`changed`). A recipe or a base sets the options that the user does not."""

    WITH_RESUME: ClassVar[tuple[str, ...]] = (*OutputOptions.WITH_RESUME, "goodput")

    strategy: tuple[str, ...] = _arms(
        (),
        "An arm: name or name:key=value,... Repeatable. Default: no-spec, ngram, and eagle:k=4 if specbench ships a "
        "head for the model.",
        flags="--strategy -s",
    )
    recipe: str | None = _arms(
        None, "A stored comparison (`specbench list`) or a .toml file; options given here replace its own."
    )
    base: str | None = _arms(
        None, "Ablation: change one switch at a time of this arm, vllm-0.9 or best; options given here replace its own."
    )
    ablate: tuple[str, ...] = _arms(
        (), "With --base: only this switch and these values, as sync=none,single. Repeatable."
    )
    batch_sizes: str | None = _arms(None, "Run everything at each of these concurrencies, as 1,8,64.")
    goodput: tuple[str, ...] = _output(
        (),
        "Limits in ms, as ttft:500 tpot:50 (ttft, tpot, e2el): also show the requests/s that kept all of them. Of a "
        "stored run: specbench show --goodput.",
        metavar="KEY:MS",
    )
    format: str = changed(
        OutputOptions,
        "format",
        help="table; wide (or --wide): with every column and note; json: everything, on stdout.",
        choices=("table", "wide", "json"),
    )
    head: str | None = _switch(
        "Head of all EAGLE arms: a directory, random or random-eagle1. Default: the shipped one."
    )
    k: int | None = _switch("Drafts per round (num_speculative_tokens) of arms that do not set it.")
    num_steps: int | None = _switch("Depth of the draft tree of arms that do not set it.")
    topk: int | None = _switch("Children per node of the draft tree.", flags="--speculative-eagle-topk")
    num_draft_tokens: int | None = _switch("Nodes of the draft tree that are verified per round.")
    attention: str | None = _switch(f"Attention backend of all arms: {_WORDS['attention']}.")
    attention_drafter: str | None = _switch(f"The drafters' attention backend: {_WORDS['attention_drafter']}.")
    graph: str | None = _switch(f"Graph plan of all arms: {_WORDS['graph']}.")
    graph_target: str | None = _switch(f"The target's part: {_WORDS['target']}.")
    graph_first: str | None = _switch(f"The first drafter pass: {_WORDS['first']}.")
    graph_later: str | None = _switch(f"The later drafter passes: {_WORDS['later']}.")
    graph_mixed: str | None = _switch(f"Steps with prompt rows: {_WORDS['mixed']}.")
    sync: str | None = _switch(f"What the host waits for in a round: {_WORDS['sync']}.")
    drafter: str | None = _switch(f"Rows of the first drafter pass of EAGLE chains: {_WORDS['drafter']}.")
    state_update: str | None = _switch(f"Kernels that advance a round's state: {_WORDS['state_update']}.")
    acceptance: str | None = _switch(
        "real, synthetic:LENGTH, synthetic:rates=a/b/.., synthetic:histogram=n0/n1/.., "
        "synthetic:drift=TOKENS/LENGTH/LENGTH/.., measured:sharegpt"
    )
    python: str | None = _engine(
        "Arms of other engines: virtual environment or interpreter that has the engine.",
        flags="--engine-python",
        metavar="VENV",
    )
    ref: str | None = _engine(
        "Arms of vLLM and SGLang: git revision of the engine's editable checkout, with the same compiled parts.",
        flags="--engine-ref",
        metavar="REF",
    )
    command: str | None = _engine(
        "Arms of other engines: command that starts their server; {model}, {host} and {port} are filled in.",
        flags="--engine-command",
    )
    url: str | None = _engine(
        "Arms of other engines: address of a running server, as http://HOST:PORT/v1.", flags="--base-url"
    )
    accuracy: str | None = _measurement(
        None, "Also score the arms on these lm-eval tasks after the timed blocks, as gsm8k:200.", metavar="TASK[:LIMIT]"
    )
    accuracy_num_fewshot: int | None = _measurement(None, "With --accuracy: few-shot examples; default: the task's.")
    accuracy_include_path: str | None = _measurement(None, "With --accuracy: a folder of your own lm-eval tasks.")
    certify_graphs: bool = _measurement(
        False,
        "Also trace every arm on the GPU after the timed blocks, to check that it ran the graphs that its row claims, "
        "and to count launches and synchronisations.",
    )
    file: Recipe | Base | None = field(default=None, compare=False, repr=False)  # read from `recipe` or `base`

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file is None and (self.recipe or self.base):
            raise ValueError("recipe: RunOptions.of reads a recipe or a base; RunOptions() does not")
        parse_slos(self.goodput)

    @classmethod
    def of(cls: type[AnyRun], named: Mapping[str, Value]) -> AnyRun:
        """A recipe or a base sets the options that are not in `named`. ValueError for both at once."""
        recipe, base = named.get("recipe"), named.get("base")
        if recipe is not None and base is not None:
            raise ValueError("base: --recipe and --base are mutually exclusive")
        file: Recipe | Base | None = None
        if recipe is not None or base is not None:
            schema = {name: spec for name, spec in cls.schema().items() if spec.group not in _NOT_IN_FILES}
            file = load_recipe(str(recipe), schema) if recipe is not None else load_base(str(base), schema)
        values = {**(file.run if file else {}), **named}
        return cls(**values, given=frozenset(named), file=file)  # type: ignore[arg-type]

    @property
    def switches(self) -> Switches:
        """The switches for all arms: from a recipe or base, and as set by the user."""
        names = [name for name in self.schema() if name in (*STRATEGY_KEYS, *ENGINE_KEYS)]
        values = {name: str(value) for name in names if (value := getattr(self, name)) is not None}
        return Switches(
            defaults={name: value for name, value in values.items() if name not in self.given},
            given={name: value for name, value in values.items() if name in self.given},
        )

    @property
    def slos(self) -> Slos:
        return parse_slos(self.goodput)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes to measure."""
        return parse_loads("batch_sizes", self.batch_sizes, "1,8,64") if self.batch_sizes else (self.max_concurrency,)


AnyRun = TypeVar("AnyRun", bound=RunOptions)


def parse_loads(name: str, text: str, example: str) -> tuple[int, ...]:
    """Parses several values of --max-concurrency, as `parse_numbers`."""
    return parse_numbers(name, text, example, most=Conditions.schema()["max_concurrency"].most)


def parse_numbers(name: str, text: str, example: str, *, most: int | None = None) -> tuple[int, ...]:
    """Parses `1,4,16` into distinct numbers, sorted. ValueError naming the option for anything else."""
    words = [word.strip() for word in text.split(",")]
    numbers = {number for word in words if (number := parse_count(word))}
    if len(numbers) < len(words) or (most is not None and max(numbers) > most):
        which = "different numbers >= 1" if most is None else f"different numbers from 1 to {most}"
        raise ValueError(f"{name}: {text!r} is not allowed; allowed: {which}, as {example}")
    return tuple(sorted(numbers))
