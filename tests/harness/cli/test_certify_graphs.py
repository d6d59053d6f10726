"""`specbench run --certify-graphs`: columns, marks and stored profiles; the traces themselves need a GPU."""

from __future__ import annotations

import dataclasses
import json

import pytest
from profile_samples import eagle_profile

from specbench.harness.experiments import run_graphs
from specbench.harness.profiling.profile_file import write_profile
from specbench.harness.profiling.profile_run import arm_folder
from specbench.harness.store.purpose import GraphCertificates

ARMS = ["-s", "no-spec", "-s", "ngram:k=2"]


@pytest.fixture
def traced(monkeypatch):
    """Certificates as asked for, made up by arm: `verdicts` (an exception fails); returns the arms traced so far."""

    def install(**verdicts) -> list[str]:
        seen: list[str] = []

        def certify(arm, deployment, load, folder):
            label = arm.config.label
            assert not deployment.engine.has_work and len(load.prompts) == 3
            seen.append(label)
            verdict = verdicts.get(label.partition(":")[0].replace("-", "_"), "holds")
            if isinstance(verdict, BaseException):
                raise verdict
            profile = eagle_profile()
            profile = dataclasses.replace(
                profile,
                subject=dataclasses.replace(profile.subject, arm=label),
                graph=dataclasses.replace(
                    profile.graph,
                    verdict=verdict,
                    reasons=("draft 1: 14 of 14 kernels launched",) * (verdict == "void"),
                ),
            )
            folder.mkdir(parents=True, exist_ok=True)
            write_profile(profile, folder)
            return profile

        monkeypatch.setattr(
            run_graphs, "graph_record", lambda asked, config: GraphCertificates(num_rounds=8) if asked else None
        )
        monkeypatch.setattr(run_graphs, "certify_arm", certify)
        return seen

    return install


def test_without_a_gpu_it_is_refused(cli, toy, runs):
    result = cli(*toy, *ARMS, "--certify-graphs")
    assert result.exit_code == 2 and "certify_graphs: needs a GPU, and the device is cpu" in result.stderr
    assert not runs.exists()


def test_unasked_for_nothing_is_traced_and_no_column_added(cli, toy, traced):
    seen = traced()
    result = cli(*toy, *ARMS)
    assert result.exit_code == 0 and not seen and "graph claim" not in result.stdout


def test_every_arm_has_columns_and_a_stored_profile(cli, toy, traced, only_run):
    seen = traced(no_spec="no claim")
    result = cli(*toy, *ARMS, "--certify-graphs")
    assert result.exit_code == 0 and seen == ["no-spec", "ngram:k=2"]
    _, header, _, *rows = result.stdout.splitlines()
    assert [w for w in header.split("  ") if "graph" in w or "trace" in w or "launches" in w]
    for word in ("graph claim", "graph share", "graph launches/round", "launches/round", "syncs/round (trace)"):
        assert word in header
    assert "no claim" in rows[0] and "holds" in rows[1] and "95.1%" in rows[1]
    run = only_run()
    assert (run.path / "profile" / arm_folder("ngram:k=2") / "profile.json").exists()
    report = json.loads((run.path / "report.json").read_text())
    assert report["graphs"]["no-spec"]["graph"]["verdict"] == "no claim"
    assert "graph claim" in (run.path / "report.md").read_text()


def test_a_void_claim_marks_its_row_and_fails_the_run(cli, toy, traced, only_run):
    seen = traced(ngram="void")
    result = cli(*toy, *ARMS, "--certify-graphs")
    assert result.exit_code == 1
    _, _, _, plain, row, *notes = result.stdout.splitlines()
    assert row.startswith("ngram:k=2 (synthetic) (GRAPH CLAIM VOID)") and "VOID" not in plain
    assert "GRAPH CLAIM VOID: draft 1: 14 of 14 kernels launched" in "".join(notes)
    compared = cli("compare", only_run().path, "--format", "md")
    assert "| ngram:k=2 (synthetic) (GRAPH CLAIM VOID) |" in compared.stdout
    again = cli("run", "--resume", only_run().path)
    assert again.exit_code == 1 and seen == ["no-spec", "ngram:k=2"], "a certificate that is there stands"


@pytest.mark.parametrize("verdict", ["holds", "no claim", "cannot tell"])
def test_other_verdicts_fail_no_run(cli, toy, traced, verdict):
    traced(ngram=verdict)
    assert cli(*toy, *ARMS, "--certify-graphs").exit_code == 0


def test_a_failed_trace_is_said_and_tried_again_by_a_resumed_run(cli, toy, traced, only_run):
    traced(ngram=RuntimeError("the batch was not steady"))
    result = cli(*toy, *ARMS, "--certify-graphs")
    assert result.exit_code == 1 and "graphs not traced: the batch was not steady" in result.stdout
    before = only_run().frames().requests
    seen = traced()
    result = cli("run", "--resume", only_run().path)
    assert result.exit_code == 0 and seen == ["ngram:k=2"] and "not traced" not in result.stdout
    assert only_run().frames().requests.equals(before), "blocks are not measured again"
    assert cli("run", "--resume", only_run().path).exit_code == 0 and seen == ["ngram:k=2"]


def test_a_failure_that_was_mended_is_none(cli, toy, traced, only_run):
    """Its file may be left; an arm that was not traced yet is no failure either."""
    traced(no_spec=RuntimeError("the batch was not steady"))
    cli(*toy, *ARMS, "--certify-graphs")
    directory = only_run()
    assert run_graphs.has_failed(directory)
    folder = directory.path / "profile" / arm_folder("no-spec")
    (directory.path / "profile" / arm_folder("ngram:k=2") / "profile.json").rename(folder / "profile.json")
    assert run_graphs.missing(directory) and not run_graphs.has_failed(directory)


def test_resume_takes_no_certificate_of_its_own(cli, toy, traced, only_run):
    traced()
    assert cli(*toy, *ARMS).exit_code == 0
    result = cli("run", "--resume", only_run().path, "--certify-graphs")
    assert result.exit_code == 2 and "drop --certify-graphs" in result.stderr
