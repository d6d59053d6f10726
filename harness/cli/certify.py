"""`specbench certify`: do the arms say what the target says?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specbench.harness.engine.legality import ALLOWED

from .run import typed_command, with_head
from .run_plan import is_typed

_WITH_RUN = ("run", "as_json", "quiet", "temperature", "num_seeds")


def certify(
    ctx: typer.Context,
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", "-s", help="An arm, as in `specbench run`. Repeatable; no-spec is always added."),
    ] = None,
    cover: Annotated[
        str | None,
        typer.Option(
            metavar="pairwise",
            help="Instead of --strategy: at most 30 arms in which every two switches that may be combined on this "
            "machine meet.",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Certify the arms and prompts of a stored run, which is then marked in its tables where it fails; "
            "or go on with an interrupted certificate.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="As in `specbench run`.")] = "smollm2-135m-instruct",
    load_format: Annotated[str, typer.Option(help="auto or dummy.")] = "auto",
    head: Annotated[str | None, typer.Option(help="Head of all EAGLE arms. Default: the shipped one.")] = None,
    dataset_name: Annotated[str, typer.Option(help="Real prompts; as in `specbench run`.")] = "sharegpt-held-out",
    dataset_path: Annotated[str | None, typer.Option(help="Your file instead of the named data set.")] = None,
    num_prompts: Annotated[int, typer.Option(help="Prompts.")] = 50,
    output_len: Annotated[int, typer.Option(help="Most output tokens of every prompt.")] = 64,
    temperature: Annotated[
        list[float] | None, typer.Option(help="Repeatable. Default: 0 and 0.8. Above 0 the arms share their noise.")
    ] = None,
    num_seeds: Annotated[
        int, typer.Option(help="Seeds of the distribution test at each temperature above 0, at least 50; 0: none.")
    ] = 400,
    max_model_len: Annotated[int, typer.Option(help="Most tokens of a request, prompt and output.")] = 2048,
    max_concurrency: Annotated[int, typer.Option(help="Requests in flight at once.")] = 8,
    seed: Annotated[int, typer.Option(help="Choice of prompts and sampling.")] = 42,
    dtype: Annotated[str, typer.Option(help="auto, bfloat16 or float32.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    attention: Annotated[
        str | None, typer.Option(help=f"Attention backend of all arms: {', '.join(ALLOWED['attention'])}.")
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the run directory's name.")] = "certify",
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Compare every arm with no-spec and with the target's own fp32 logits, and its rounds with a plain mode of itself.

    An arm passes if its outputs are no-spec's, or leave them only where the target itself is undecided; if no token
    lies further below the best than the dtype's tolerance, nor all together further than the target's own would; if it
    accepts the drafts that its strategy accepts without graphs; and if its tokens over many seeds have the target's
    distribution.

    Exit code: 0 all arms passed, 6 an arm failed, 2 bad input, 130 interrupted (go on with --run).

    Examples:

      specbench certify -s eagle:k=4 -s naive-eagle:k=3 --num-prompts 50 --output-len 64

      specbench certify --cover pairwise --num-prompts 16 --output-len 96 --num-seeds 100

      specbench certify --run runs/20260101T000000Z-run-1a2b3c4d
    """
    from specbench.harness.accuracy.certify_plain import with_references
    from specbench.harness.accuracy.certify_record import CertifySettings, read, settings_of
    from specbench.harness.experiments.certify import certify as certify_arms
    from specbench.harness.experiments.session import Output
    from specbench.harness.run_config import RunConfig, parse_arm
    from specbench.harness.store.run_directory import RunDirectory
    from specbench.workloads.base import WorkloadRequest

    from .certify_output import print_certificate
    from .ending import end
    from .progress import RunProgress

    settings = CertifySettings(
        temperatures=tuple([0.0, 0.8] if temperature is None else temperature), num_seeds=num_seeds
    )
    if run is not None:
        _check_alone(ctx)
        directory = RunDirectory.open(run)
        stored = read(directory.path)
        if stored is not None:
            if is_typed(ctx, "temperature") or is_typed(ctx, "num_seeds"):
                raise ValueError("run: a certificate goes on with its own settings; drop --temperature and --num-seeds")
            settings = settings_of(stored)
        config = RunConfig.from_dict(directory.manifest["config"])
        with RunProgress(quiet) as progress:
            directory, is_whole = certify_arms(config, settings, directory, progress)
        end(print_certificate(directory, is_whole=is_whole, as_json=as_json))
        return
    texts = _asked_arms(strategy, cover, attention, device)
    defaults = {} if attention is None else {"attention": attention}
    arms, _ = with_references([parse_arm(with_head(text, head), defaults) for text in texts])
    config = RunConfig(
        arms=arms,
        workload=WorkloadRequest(
            name=dataset_name,
            path=dataset_path,
            num_prompts=num_prompts,
            seed=seed,
            max_model_len=max_model_len,
            output_len=output_len,
        ),
        model=model,
        load_format=load_format,
        dtype=dtype,
        device=device,
        max_concurrency=max_concurrency,
        seed=seed,
        num_repeats=1,
    )
    output = Output(output_dir, label, tuple(typed_command()))
    with RunProgress(quiet) as progress:
        directory, is_whole = certify_arms(config, settings, output, progress)
    end(print_certificate(directory, is_whole=is_whole, as_json=as_json))


def _asked_arms(strategy: list[str] | None, cover: str | None, attention: str | None, device: str) -> list[str]:
    """Strategy arguments, typed or of a cover. ValueError unless there is exactly one of both."""
    if cover is None:
        if not strategy:
            raise ValueError("strategy: there must be at least one arm, a cover (--cover) or a stored run (--run)")
        return strategy
    if cover != "pairwise":
        raise ValueError(f"cover: {cover!r} is not known; allowed: pairwise")
    for name, value in (("strategy", strategy), ("attention", attention)):
        if value:
            raise ValueError(f"cover: it chooses every arm's switches itself; drop --{name}")
    from specbench.harness.accuracy.pairwise import pairwise_cover
    from specbench.harness.run.target import pick_device

    return [cell.text() for cell in pairwise_cover(pick_device(device).type)]


def _check_alone(ctx: typer.Context) -> None:
    given = ["--" + name.replace("_", "-") for name in ctx.params if name not in _WITH_RUN and is_typed(ctx, name)]
    if given:
        raise ValueError(f"run: a stored run has its own options; drop {', '.join(given)}")
