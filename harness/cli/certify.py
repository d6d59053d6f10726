"""`specbench certify`: are the outputs lossless with respect to the target?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.spec.commands import CertifyOptions

from .derived import takes_options, typed_command
from .output import end, print_how, print_json, print_where, say_interrupted


@takes_options
def certify(options: CertifyOptions) -> None:
    """Check that arms are lossless: against no-spec, the target's fp32 logits, and the same strategy without graphs.

    An arm passes if its outputs equal those of no-spec, or differ only at near-ties of the target; if no token's logit
    is below the best by more than the dtype's tolerance, and the total gap does not exceed the target's own; if it
    accepts the same drafts as its strategy without graphs; and if its tokens over many seeds follow the target's
    distribution.

    Arms of other engines are compared with the same engine's no-spec at temperature 0, by that engine's own scores if
    it provides them, otherwise by equality alone; what could not be checked is listed with the reason.

    Exit code: 0 all arms passed, 6 an arm failed, 2 bad input, 130 interrupted (continue with --run).

    Examples:

      specbench certify -s eagle:k=4 -s naive-eagle:k=3 --num-prompts 50 --output-len 64

      specbench certify -s vllm/eagle:k=4 --engine-python VENV --num-prompts 20

      specbench certify --cover pairwise --num-prompts 16 --output-len 96 --num-seeds 100

      specbench certify --run runs/20260101T000000Z-run-1a2b3c4d
    """
    from specbench.harness.experiments.certify import RESUME, certificate
    from specbench.harness.judge.certificate_marks import all_passed, read_certificate
    from specbench.harness.store.files import write_text
    from specbench.reports.experiments.certificate import certificate_table
    from specbench.reports.markdown import markdown_result

    from .progress import open_progress

    with open_progress(options, "certify") as progress:
        directory, is_whole = certificate(options, typed_command(), progress)
    stored = read_certificate(directory.path)
    if stored is not None:
        write_text(directory.path / "certificate.md", markdown_result(certificate_table(stored)))
        if options.format == "json":
            print_json(stored)
        else:
            print_certificate(stored, options.format)
            print_how(directory.record.command)
            print_where(directory.path)
    if not is_whole:
        say_interrupted(RESUME(directory.path), kept="judged arms")
        raise typer.Exit(ExitCode.INTERRUPTED)
    end(ExitCode.PASSED if stored is not None and all_passed(stored) else ExitCode.WRONG)


def print_certificate(stored: Mapping[str, Any], format: str) -> None:
    """Prints the overall result, then the rows: the columns that fit, or with `wide` all of them."""
    from rich.console import Console

    from specbench.reports.experiments.certificate import certificate_answer, certificate_brief, certificate_table
    from specbench.reports.terminal import print_result, sentence_lines

    console = Console()
    typer.secho(sentence_lines(certificate_answer(stored), console), bold=True)
    width = console.width if console.is_terminal else None
    print_result(certificate_table(stored) if format == "wide" else certificate_brief(stored, width), console)
