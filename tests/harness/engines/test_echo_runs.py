"""An engine that knows texts and times only goes through what measures, reports and judges."""

from __future__ import annotations

import json

from toy.echo_engine import TEXT_ONLY

from specbench.harness.store.arm_record import Fact

ARMS = ("-s", "no-spec", "-s", "ngram:k=3")


def row_of(text: str, label: str) -> list[str]:
    (line,) = (line for line in text.splitlines()[1:] if line.startswith(f"{label} "))
    return line.split()


def test_what_it_does_not_know_is_a_dash_with_a_reason(cli, echo, only_run):
    result = cli(*echo, *ARMS, "--wide")
    assert result.exit_code == 0, result.output
    # Eight words at 10 ms each; in chunks of four the last word is there after 20 ms.
    row = row_of(result.stdout, "no-spec")
    assert row[:11] == ["no-spec", "100", "10.00", "10.00", "±0.0%", "(n=2)", *["-"] * 5]
    assert row[11:14] == ["warm-up", "not", "stable"]
    assert row_of(result.stdout, "ngram:k=3")[1:5] == ["400", "(4.00x)", "1.429", "10.00"]
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("* A dash for "))
    assert line.startswith("* A dash for token ids, ") and line.endswith(f": {TEXT_ONLY}.") and "acceptance" in line
    assert "* engine: echo" in result.stdout.splitlines()
    run = only_run()
    requests, steps = run.frames().requests, run.frames().steps
    assert requests["output_token_ids"].isna().all() and requests["t_first_device_ns"].isna().all()
    assert requests["num_preemptions"].isna().all() and steps.empty
    assert set(requests["output_text"]) == {f"{n} one two three four five six seven" for n in range(6)}
    arm = run.record.arms[0]
    assert arm.unknown[Fact.ROUNDS] == TEXT_ONLY and arm.engine is not None and arm.engine.version == "1"


def test_no_figure_of_what_it_does_not_know_is_a_number(cli, echo):
    report = json.loads(cli(*echo, *ARMS, "--format", "json", "-q").stdout)
    for block in report["blocks"]:
        assert block["tps"] > 0 and block["tpot_ms"]["mean"] > 0
        for name in ("num_preemptions", "syncs_per_round", "decode_tps", "steady_tps", "num_decode_rounds"):
            assert block[name] is None, name
        assert block["ttft_device_ms"]["mean"] is None and block["acceptance"]["acceptance_length"] is None
        assert block["itl_ms"]["mean"] is None and block["acceptance"]["num_truncated_tokens"] is None
    assert report["arms"][1]["speedup"]["same_output_rate"] == 1, "told by text"


def test_it_is_shown_and_reported(cli, echo, only_run, tmp_path):
    assert cli(*echo, *ARMS).exit_code == 0
    shown = cli("show", only_run().path)
    assert shown.exit_code == 0 and TEXT_ONLY in shown.stdout
    pages = cli("report", only_run().path, "--output", tmp_path / "pages")
    assert pages.exit_code == 0, pages.output


def test_resume_measures_what_is_missing(cli, echo, only_run, server):
    assert cli(*echo, *ARMS).exit_code == 0
    num = server.num_requests
    again = cli("run", "--resume", only_run().path)
    assert again.exit_code == 0 and "nothing to do" in again.stderr and server.num_requests == num


def test_a_sweep(cli, echo, monkeypatch, runs):
    from specbench.harness.cli import sweep_output
    from specbench.harness.experiments import sweep as experiment

    def unknown(device, dtype):
        raise RuntimeError("not this time")

    monkeypatch.setattr(experiment, "measure_machine", unknown)
    monkeypatch.setattr(sweep_output, "write_reports", lambda run: [])
    words = ["-s", "ngram", "--num-drafts", "1,3", "--max-concurrency", "1,2"]
    result = cli("sweep", *echo[1:], *words, "--format", "json", "-q")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert [arm["label"] for arm in record["arms"]] == ["no-spec", "ngram:k=1", "ngram:k=3"]


def test_compare_and_gate(cli, echo, runs, server, tmp_path):
    assert cli(*echo, *ARMS).exit_code == 0
    server.delay_ms = {"ngram": 12}
    assert cli(*echo, *ARMS).exit_code == 0
    first, second = sorted(runs.iterdir(), key=lambda path: path.stat().st_ctime)
    compared = cli("compare", first, second)
    assert compared.exit_code == 0 and "TPOT" in compared.stdout, compared.output
    policy = tmp_path / "policy.toml"
    policy.write_text("[gate.failed_requests]\n[gate.same_output]\n")
    passed = cli("gate", second, "--against", first, "--policy", policy)
    assert passed.exit_code == 0, passed.output
    for asked in ("syncs_per_round", "acceptance_length", "tokens_per_step"):
        policy.write_text(f"[gate.{asked}]\n" + ("max = 1\n" if asked == "syncs_per_round" else ""))
        result = cli("gate", second, "--against", first, "--policy", policy)
        assert result.exit_code == 4 and TEXT_ONLY in result.stdout, (asked, result.output)


def test_a_history(cli, echo, runs, tmp_path):
    assert cli(*echo, *ARMS).exit_code == 0
    added = cli("history", "add", tmp_path / "h", *runs.iterdir())
    assert added.exit_code == 0 and "added: " in added.stdout, added.output
    steps = cli("history", "suspects", tmp_path / "h")
    assert steps.exit_code == 0, steps.output
