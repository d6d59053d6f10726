"""`specbench certify`: do the arms say what the target says?"""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.spec.commands import CertifyOptions

from .derived import takes_options, typed_command

_WITH_RUN = frozenset({"run", "format", "quiet"})
_SETTINGS = frozenset({"temperatures", "num_seeds"})


@takes_options
def certify(options: CertifyOptions) -> None:
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
    from specbench.harness.spec.plan import named_arm
    from specbench.harness.spec.run_config import RunConfig
    from specbench.harness.store.run_directory import RunDirectory

    from .certify_output import print_certificate
    from .ending import end
    from .progress import RunProgress

    settings = CertifySettings(temperatures=options.temperatures, num_seeds=options.num_seeds)
    if options.run is not None:
        given = [options.schema()[name].flag for name in sorted(options.given - _WITH_RUN - _SETTINGS)]
        if given:
            raise ValueError(f"run: a stored run has its own options; drop {', '.join(given)}")
        directory = RunDirectory.open(options.run)
        stored = read(directory.path)
        if stored is not None:
            if options.given & _SETTINGS:
                raise ValueError("run: a certificate goes on with its own settings; drop --temperature and --num-seeds")
            settings = settings_of(stored)
        config = RunConfig.from_dict(directory.manifest["config"])
        with RunProgress(options.quiet) as progress:
            directory, is_whole = certify_arms(config, settings, directory, progress)
        end(print_certificate(directory, options.format, is_whole=is_whole))
        return
    arms, _ = with_references([named_arm(text, options) for text in _asked_arms(options)])
    config = RunConfig.of_arms(options, arms)
    output = Output(options.output_dir, options.label, tuple(typed_command()))
    with RunProgress(options.quiet) as progress:
        directory, is_whole = certify_arms(config, settings, output, progress)
    end(print_certificate(directory, options.format, is_whole=is_whole))


def _asked_arms(options: CertifyOptions) -> Sequence[str]:
    """Strategy arguments, typed or of a cover. ValueError unless there is exactly one of both."""
    if options.cover is None:
        if not options.strategy:
            raise ValueError("strategy: there must be at least one arm, a cover (--cover) or a stored run (--run)")
        return options.strategy
    if options.cover != "pairwise":
        raise ValueError(f"cover: {options.cover!r} is not known; allowed: pairwise")
    for name in ("strategy", "attention"):
        if name in options.given:
            raise ValueError(f"cover: it chooses every arm's switches itself; drop --{name}")
    from specbench.harness.run.prepare import arm_check
    from specbench.harness.run.target import pick_device
    from specbench.harness.spec.cover import pairwise_cover

    return [cell.text() for cell in pairwise_cover(pick_device(options.device).type, arm_check(options))]
