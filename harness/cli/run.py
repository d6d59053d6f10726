"""`specbench run`: measure strategies over a workload and print the comparison."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from specbench.harness.engine.legality import ALLOWED, PART_MODES
from specbench.harness.exit_codes import ExitCode
from specbench.harness.registry import HEAD_STRATEGIES

from .option_groups import grouped
from .run_plan import check_alone, on_base, on_recipe

_WITH_RESUME = ("resume", "as_json", "quiet")


def _words(switch: str) -> str:
    return ", ".join(ALLOWED[switch])


def _modes(part: str) -> str:
    return ", ".join(PART_MODES[part])


@grouped
def run(
    ctx: typer.Context,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            help="An arm: name or name:key=value,... Repeatable. Default: no-spec, ngram, and eagle:k=4 where a head "
            "for the model comes with the package.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            is_eager=True,
            callback=on_recipe,
            help="A comparison by name (`specbench list`) or a .toml file; options given here replace its own.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            is_eager=True,
            callback=on_base,
            help="Change one thing at a time of this arm: seed-faithful or best; options given here replace its own.",
        ),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(help="With --base: switch=value,... to try instead of all switches. Repeatable."),
    ] = None,
    batch_sizes: Annotated[
        str | None, typer.Option(help="Run everything at each of these --max-concurrency, as 1,8,64.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(help="Asset name, hub name, Hugging Face directory or .gguf; a shape's name with dummy weights."),
    ] = "smollm2-135m-instruct",
    load_format: Annotated[
        str, typer.Option(help="auto: real weights; dummy: random weights of a published shape.")
    ] = "auto",
    num_layers: Annotated[int | None, typer.Option(help="Keep the first layers only (dummy weights).")] = None,
    head: Annotated[
        str | None,
        typer.Option(help="Head of all EAGLE arms: a directory, random or random-eagle1. Default: the shipped one."),
    ] = None,
    dataset_name: Annotated[
        str,
        typer.Option(
            help="sharegpt, sharegpt-held-out (never trained on), gsm8k, mt-bench, humaneval, jsonl, hf, random, ..."
        ),
    ] = "sharegpt",
    dataset_path: Annotated[
        str | None, typer.Option(help="Your file instead of the named data set; hf: ORG/NAME, a file or a directory.")
    ] = None,
    hf_split: Annotated[str | None, typer.Option(help="hf: split; default: test, validation or train.")] = None,
    hf_subset: Annotated[str | None, typer.Option(help="hf: configuration of a data set that has several.")] = None,
    hf_column: Annotated[
        str | None, typer.Option(help="hf: column of prompts; default: prompt, question, text, messages or alike.")
    ] = None,
    num_prompts: Annotated[int, typer.Option(help="Prompts in the workload.")] = 20,
    output_len: Annotated[
        int | None, typer.Option(help="Most output tokens of every prompt; default: the data set's.")
    ] = None,
    random_input_len: Annotated[int, typer.Option(help="random: prompt tokens.")] = 1024,
    random_output_len: Annotated[int, typer.Option(help="random: output tokens.")] = 128,
    random_range_ratio: Annotated[
        float, typer.Option(help="random: lengths vary by up to this fraction either way.")
    ] = 0.0,
    max_model_len: Annotated[int, typer.Option(help="Most tokens of a request, prompt and output.")] = 2048,
    max_concurrency: Annotated[int, typer.Option(help="Requests in flight at once; also the largest batch.")] = 1,
    request_rate: Annotated[
        float, typer.Option(help="Requests per second (Poisson); inf: as soon as there is room.")
    ] = float("inf"),
    burstiness: Annotated[float, typer.Option(help="Gamma shape of the arrival gaps; 1 is Poisson.")] = 1.0,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Generate to the length limit whatever is sampled.")
    ] = False,
    stop_token_id: Annotated[
        list[int] | None, typer.Option(help="A further token id that ends an answer. Repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of prompts, arrivals and sampled tokens.")] = 42,
    num_repeats: Annotated[int, typer.Option(help="Blocks of each arm, interleaved.")] = 3,
    warmup_max_s: Annotated[
        float, typer.Option(help="Longest warm-up of an arm, after every shape was met; it ends earlier once stable.")
    ] = 8.0,
    dtype: Annotated[str, typer.Option(help="auto, bfloat16 or float32.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    attention: Annotated[
        str | None, typer.Option(help=f"Attention backend of all arms: {_words('attention')}.")
    ] = None,
    attention_drafter: Annotated[
        str | None, typer.Option(help=f"The drafters' attention backend: {_words('attention_drafter')}.")
    ] = None,
    graph: Annotated[str | None, typer.Option(help=f"Graph plan of all arms: {_words('graph')}.")] = None,
    graph_target: Annotated[str | None, typer.Option(help=f"The target's part: {_modes('target')}.")] = None,
    graph_first: Annotated[str | None, typer.Option(help=f"The first drafter pass: {_modes('first')}.")] = None,
    graph_later: Annotated[str | None, typer.Option(help=f"The later drafter passes: {_modes('later')}.")] = None,
    graph_mixed: Annotated[str | None, typer.Option(help=f"Steps with prompt rows: {_modes('mixed')}.")] = None,
    sync: Annotated[str | None, typer.Option(help=f"What the host waits for in a round: {_words('sync')}.")] = None,
    drafter: Annotated[
        str | None, typer.Option(help=f"Rows of the first drafter pass of EAGLE chains: {_words('drafter')}.")
    ] = None,
    state_update: Annotated[
        str | None, typer.Option(help=f"Kernels that advance a round's state: {_words('state_update')}.")
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            help="real, synthetic:LENGTH, synthetic:rates=a/b/.., synthetic:histogram=n0/n1/.., measured:sharegpt"
        ),
    ] = None,
    accuracy: Annotated[
        str | None,
        typer.Option(
            metavar="TASK[:LIMIT]",
            help="Also score the arms on these lm-eval tasks, after the timed blocks, as gsm8k:200.",
        ),
    ] = None,
    accuracy_num_fewshot: Annotated[
        int | None, typer.Option(help="With --accuracy: examples before each question; default: the task's.")
    ] = None,
    accuracy_include_path: Annotated[
        str | None, typer.Option(help="With --accuracy: a folder of further lm-eval tasks.")
    ] = None,
    certify_graphs: Annotated[
        bool,
        typer.Option(
            "--certify-graphs",
            help="Also trace every arm on the GPU, after the timed blocks: did it run the graphs that its row claims, "
            "with how many launches and synchronisations?",
        ),
    ] = False,
    ranges: Annotated[str, typer.Option(help="nvtx: name phases for nsys and the torch profiler; off.")] = "off",
    page_size: Annotated[int, typer.Option(help="Tokens a KV page, 1-128; 0: 16 on a GPU, 128 on a CPU.")] = 0,
    num_pages: Annotated[int | None, typer.Option(help="KV pages; default: enough that nothing is preempted.")] = None,
    max_num_batched_tokens: Annotated[
        int, typer.Option(help="Rows of a prefill step; longer prompts come in chunks.")
    ] = 2048,
    output_dir: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the run directory's name.")] = "run",
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with an interrupted run, with its own options.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON on stdout instead of the table.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Measure strategies on the same prompts, arms interleaved, and print a comparison table.

    Every raw value goes to runs/<UTC>-<label>-<id>/ as it is measured; Ctrl-C keeps it, --resume goes on.

    Exit code: 0 all arms measured, 1 an arm failed or its graph claim is void (its row says why), 2 bad input, 130
    interrupted.

    Examples:

      specbench run --dataset-name sharegpt-held-out

      specbench run --strategy no-spec --strategy ngram:k=4 --dataset-name sharegpt --num-prompts 40

      specbench run -s no-spec -s naive-eagle:k=4,head=DIR --dataset-name gsm8k --max-concurrency 8

      specbench run -s no-spec -s eagle:k=4,head=random --load-format dummy --model llama-3.1-8b --dataset-name random
      --acceptance synthetic:3.0 --ignore-eos

      specbench run -s no-spec -s eagle:k=4 --num-prompts 40 --max-concurrency 8 --accuracy gsm8k:200

      specbench run --recipe seed-25196 --num-prompts 40

      specbench run --base seed-faithful --factor sync=single,none --factor drafter=padded --batch-sizes 1,8,64

      specbench run --resume runs/20260101T000000Z-run-1a2b3c4d
    """
    from specbench.harness.experiments.run import by_batch_size, new_run, record_of_further_work, resume_run
    from specbench.harness.experiments.run_accuracy import parse_accuracy
    from specbench.harness.experiments.session import Output, check_writable

    from .ending import end
    from .progress import RunProgress
    from .run_options import requested
    from .run_output import print_batch_sizes, print_run

    if resume is not None:
        check_alone(ctx, _WITH_RESUME, "a run")
        with RunProgress(quiet) as progress:
            directory = resume_run(resume, typed_command(), progress)
        end(print_run(directory, as_json=as_json))
        return
    asked = requested(ctx)
    scored = parse_accuracy(accuracy, accuracy_num_fewshot, accuracy_include_path, load_format, asked.config.arms)
    check_writable(output_dir)
    with RunProgress(quiet) as progress:
        record = {**asked.record, **record_of_further_work(asked.config, certify_graphs, scored, progress)}
    directories, code = [], ExitCode.PASSED
    for config, name in by_batch_size(asked.config, asked.batch_sizes, label):
        with RunProgress(quiet) as progress:
            directory = new_run(config, record, Output(output_dir, name, tuple(typed_command())), progress)
        directories.append(directory)
        code = max(code, print_run(directory, as_json=as_json))
        if code == ExitCode.INTERRUPTED:
            break
    if len(asked.batch_sizes) > 1 and not as_json:
        print_batch_sizes(directories)
    end(code)


def typed_command() -> list[str]:
    """The command as anybody may type it, without the path of this installation."""
    return ["specbench", *sys.argv[1:]]


def with_head(text: str, head: str | None) -> str:
    """`--head` is short for head=... in every arm whose strategy takes a head and that names none."""
    name, _, options = text.partition(":")
    named = any(pair.startswith("head=") for pair in options.split(","))
    if head is None or name not in HEAD_STRATEGIES or named:
        return text
    return f"{name}:{options},head={head}" if options else f"{name}:head={head}"
