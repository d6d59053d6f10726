"""`specbench profile import`: a trace from anywhere, its report on stdout, and what is kept of it when asked."""

from __future__ import annotations

import gzip
import json
import re
from itertools import count
from pathlib import Path

import pytest
from cli.conftest import refused

from specbench.harness.profiling.profile_file import read_profile

PLANTED = "planted-host-name"


def kineto(path: Path, *, ranges: bool = True, kernels: bool = True, verify: str = "specbench:verify") -> Path:
    """Five rounds: verify from a graph of two kernels, a wait, one drafter kernel launched by itself 30 us later."""
    events: list[dict] = []
    number = count(1)

    def event(category: str, name: str, t0: float, dur: float, tid: int = 1, **args) -> None:
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 10, "tid": tid, "ts": t0, "dur": dur, "args": args}
        )

    def work(call: str, t0: float, *spans: tuple[str, float, float]) -> None:
        correlation = next(number)
        event("cuda_runtime", call, t0, 4, correlation=correlation)
        for name, start, dur in spans if kernels else ():
            event("kernel", name, start, dur, tid=7, correlation=correlation, device=0, stream=7)

    for step in range(5):
        t = 1000.0 * step
        if ranges:
            event("user_annotation", f"specbench:step {step}", t, 900)
            event("user_annotation", verify, t + 5, 20)
            event("user_annotation", "specbench:accept", t + 30, 480)
            event("user_annotation", "specbench:draft_first", t + 520, 100)
        work("cudaGraphLaunch", t + 10, ("flash_fwd_kernel", t + 20, 100), ("gemm", t + 120, 380))
        event("cuda_runtime", "cudaStreamSynchronize", t + 40, 462, correlation=next(number))
        work("cudaLaunchKernel", t + 524, ("gemm", t + 530, 60))
    content = {
        "schemaVersion": 1,
        "hostname": PLANTED,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "traceEvents": events,
    }
    text = json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_the_report_answers_from_the_trace_alone(cli, tmp_path):
    result = cli("profile", "import", kineto(tmp_path / "rank0.json"))
    assert result.exit_code == 0
    for sentence in (
        "Draft step 0: 0% of 1 kernels from a graph.",
        "launches a round: 2\ngraph launches a round: 1\n",
        "Verify to draft: GPU idle 30.0 µs (median of 5 rounds); mean by cause: host late 30.0 µs.",
        "synchronisations a round: 1\n",
        "NO CLAIM",
    ):
        assert sentence in result.stdout
    assert re.search(r"^accept +cudaStreamSynchronize +\S+ +1 +462.0$", result.stdout, re.M)
    assert re.search(r"^flash_fwd_kernel +verify +1 +100.0 ", result.stdout, re.M)


def test_nothing_is_kept_unless_asked(cli, tmp_path):
    trace = kineto(tmp_path / "rank0.json")
    before = trace.read_bytes()
    assert cli("profile", "import", trace, "--format", "md").stdout.startswith("# Profile: rank0.json\n")
    assert list(tmp_path.iterdir()) == [trace] and trace.read_bytes() == before


@pytest.mark.parametrize("name", ["rank0.json", "rank0.json.gz"])
def test_what_is_kept_is_redacted_and_said(cli, tmp_path, name):
    kept = tmp_path / "kept"
    result = cli("profile", "import", kineto(tmp_path / name), "-o", kept, "-f", "json")
    assert result.exit_code == 0 and json.loads(result.stdout)["schema"] == "specbench.profile/1"
    trace = kept / f"trace{'.json.gz' if name.endswith('.gz') else '.json'}"
    assert f"wrote {trace}: a copy without the process environment, host and user names" in result.stderr
    assert {p.name for p in kept.iterdir()} == {
        trace.name,
        "run.json",
        "profile.json",
        "profile.html",
        "profile.md",
        "trace.perfetto.json",
    }
    for file in kept.iterdir():
        content = file.read_bytes()
        assert PLANTED.encode() not in (gzip.decompress(content) if file.suffix == ".gz" else content)
    assert read_profile(kept).quality.num_rounds == 5


def test_a_kept_import_can_be_shown_and_analysed_again(cli, tmp_path):
    kept = tmp_path / "kept"
    first = cli("profile", "import", kineto(tmp_path / "rank0.json"), "-o", kept).stdout
    shown = cli("profile", "show", kept).stdout
    assert shown == first
    again = cli("profile", "import", kept / "trace.json").stdout
    told = [text.split("A round at a glance\n")[1].split("\nCommand\n")[0] for text in (first, again)]
    assert told[0] == told[1] and "Verify to draft" in told[0]


def test_an_import_stands_on_the_site_with_its_timeline_first(cli, tmp_path):
    cli("profile", "import", kineto(tmp_path / "rank0.json"), "-o", tmp_path / "runs" / "mine")
    made = cli("report", tmp_path / "runs", "-o", tmp_path / "site")
    assert made.exit_code == 0, made.stderr
    (page,) = (tmp_path / "site" / "profiles").iterdir()
    text = page.read_text()
    assert text.index(">Timeline</h2>") < text.index(">Phases</h2>") < text.index(">Command</h2>")
    (run,) = (tmp_path / "site" / "runs").iterdir()
    assert f"profiles/{page.name}" in run.read_text()


def test_rules_of_another_engine(cli, tmp_path):
    trace = kineto(tmp_path / "rank0.json", verify="my engine: target")
    plain = cli("profile", "import", trace).stdout
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\npattern = "my engine: target"\nphase = "verify"\n')
    ruled = cli("profile", "import", trace, "--rules", rules).stdout
    assert "Verify to draft:" not in plain and "Refused" in plain
    assert "Verify to draft: GPU idle 30.0 µs" in ruled and "Refused" not in ruled


def test_bad_input_is_one_line(cli, tmp_path):
    trace = kineto(tmp_path / "rank0.json")
    (tmp_path / "noise").write_bytes(b"noise" * 100)
    (tmp_path / "rules.toml").write_text('[[rule]]\npattern = "x"\nphase = "dreaming"\n')
    (tmp_path / "cut.json").write_bytes(trace.read_bytes()[:-500])
    refused(cli("profile", "import", tmp_path / "nothing"), "nothing")
    refused(cli("profile", "import", tmp_path / "noise"), "neither sqlite nor JSON", "allowed")
    refused(cli("profile", "import", tmp_path / "cut.json"), "cut.json")
    refused(cli("profile", "import", trace, "--rules", tmp_path / "rules.toml"), "phase 'dreaming'", "allowed")
    refused(cli("profile", "import", trace, "--nodes", tmp_path / "none.json"), "nodes:", "none.json")
    refused(cli("profile", "import", trace, "-f", "pdf"), "'pdf' is not known")
    refused(cli("profile", "import", trace, "-o", tmp_path), "not an empty folder")
    not_stored = cli("profile", "import", trace, "-o", tmp_path / "noise" / "x")
    assert not_stored.exit_code == 2 and f"error: output: cannot write to {tmp_path}/noise/x: " in not_stored.stderr
    refused(cli("profile", "import", kineto(tmp_path / "a.json", ranges=False)), "no host ranges")
    refused(cli("profile", "import", kineto(tmp_path / "b.json", kernels=False)), "no GPU kernels")


def test_a_folder_of_a_failed_import_does_not_stay(cli, tmp_path, monkeypatch):
    import specbench.reports.profile.files as files

    def fail(*_):
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(files, "write_profile_reports", fail)
    result = cli("profile", "import", kineto(tmp_path / "rank0.json"), "-o", tmp_path / "kept")
    assert result.exit_code == 2 and "No space left on device" in result.stderr
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("claims", "code", "said"),
    [
        (["verify=full"], 0, "The certificate HOLDS"),
        (["verify=full", "drafter=full"], 1, "draft step 0 (claimed full): 5 of 5 kernels launched by the host"),
        (["later=piecewise"], 1, "later (claimed piecewise): no kernels of it in 5 of 5 rounds"),
    ],
)
def test_what_is_claimed_gets_a_verdict(cli, tmp_path, claims, code, said):
    words = [word for claim in claims for word in ("--claim", claim)]
    result = cli("profile", "import", kineto(tmp_path / "rank0.json"), *words)
    assert result.exit_code == code and said in result.stdout, result.stdout
    assert all(f"claimed on the command line: {claim}" in result.stdout for claim in claims)


def test_claims_that_are_none(cli, tmp_path):
    for claim in ("drafter=fast", "head=full", "drafter"):
        refused(
            cli("profile", "import", kineto(tmp_path / "rank0.json"), "--claim", claim), "claim: ", "verify, drafter"
        )


def test_the_command_of_a_trace_that_does_not_hold_it(cli, tmp_path):
    words = ["--command", "vllm serve m --api-key hidden", "-o", tmp_path / "kept"]
    result = cli("profile", "import", kineto(tmp_path / "rank0.json"), *words)
    assert (
        "vllm serve m --api-key '[redacted]'" in result.stdout and "does not contain the program" not in result.stdout
    )
    assert read_profile(tmp_path / "kept").source.command == ("vllm", "serve", "m", "--api-key", "[redacted]")
