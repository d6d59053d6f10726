"""What `specbench certify` prints of a certificate, and the table it writes."""

from __future__ import annotations

import json

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.experiments.certify import RESUME
from specbench.harness.store.files import write_atomically
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.experiments.certificate import certificate_table
from specbench.reports.experiments.certificate_marks import all_passed, read_certificate
from specbench.reports.table import markdown_result, plain_result


def print_certificate(directory: RunDirectory, format: str, *, is_whole: bool) -> ExitCode:
    """The exit code that the certificate deserves; `is_whole`: nothing interrupted it."""
    certificate = read_certificate(directory.path)
    if certificate is not None:
        table = certificate_table(certificate)
        text = markdown_result(table)
        write_atomically(directory.path / "certificate.md", lambda path: path.write_text(text, encoding="utf-8"))
        if format == "json":
            typer.echo(json.dumps(certificate, indent=2))
        else:
            typer.echo(plain_result(table))
            typer.echo(f"run directory: {directory.path}")
    if not is_whole:
        again = RESUME(directory.path)
        typer.echo(f"specbench: interrupted; judged arms are kept. Go on with: {again}", err=True)
        return ExitCode.INTERRUPTED
    is_passed = certificate is not None and all_passed(certificate)
    return ExitCode.PASSED if is_passed else ExitCode.WRONG
