"""Several files in one run: formats, labels, --meta, --baseline, pairing; and the run in compare and on the site."""

from __future__ import annotations

import json
import math

import pytest
import tool_files
from tool_files import AIPERF_TOTALS, aiperf_records, guidellm_report, served, sglang_bench, vllm_bench, without_detail
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.experiments.imports.formats import FORMATS, read_results
from specbench.harness.experiments.imports.write import import_files
from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.gate import run_gates
from specbench.harness.judge.policy import parse_policy
from specbench.harness.judge.stored import read_run
from specbench.harness.metrics.run_results import results
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.site.build import build_site


@pytest.fixture
def files(tmp_path):
    """Of vLLM: without and with speculation, on the same prompts."""
    plain = tool_files.write(tmp_path / "plain.json", vllm_bench(served(num_drafts=0)))
    eagle = tool_files.write(tmp_path / "eagle.json", vllm_bench(served()))
    return [plain, eagle]


def imported(files, tmp_path, **options):
    return read_run(import_files(files, tmp_path / "runs", ["specbench", "import"], **options))


def summaries(run):
    return {arm.label: arm for arm in results(run.frames).arms}


@pytest.mark.parametrize(
    ("objects", "tool"),
    [
        ([vllm_bench(served())], "vllm bench serve"),
        ([without_detail(vllm_bench(served()))], "vllm bench serve"),
        ([sglang_bench(served())], "sglang.bench_serving"),
        ([sglang_bench(served(), has_details=False)], "sglang.bench_serving"),
        ([sglang_bench(served()), sglang_bench(served())], "sglang.bench_serving"),
        (aiperf_records(served()), "aiperf"),
        ([AIPERF_TOTALS], "aiperf"),
        ([guidellm_report(served())], "guidellm"),
    ],
)
def test_a_format_is_told_by_contents_not_by_name(tmp_path, objects, tool):
    found = read_results(tool_files.write(tmp_path / "whatever.txt", *objects))
    assert {result.tool for result in found} == {tool}
    assert len(found) == (1 if tool == "aiperf" else len(objects))
    assert [form.is_it(objects[0]) for form in FORMATS].count(True) == 1


def test_another_format_is_refused_with_what_was_looked_for(tmp_path):
    file = tool_files.write(tmp_path / "x.json", {"a": 1, "b": 2})
    with pytest.raises(
        ValueError, match=r"x.json: not a result file of a known benchmark; looked for .*its objects contain a, b"
    ) as found:
        read_results(file)
    assert all(form.name in str(found.value) and form.looked_for in str(found.value) for form in FORMATS)


@pytest.mark.parametrize("text", ["", "{", "not json\n{}", "[]", "{}\n3", "7"])
def test_no_objects(tmp_path, text):
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="bad.json"):
        read_results(file)


def test_of_two_tools_in_one_file_nothing_is_guessed(tmp_path):
    file = tool_files.write(tmp_path / "x.json", vllm_bench(served()), sglang_bench(served()))
    with pytest.raises(ValueError, match="not a result file of a known benchmark"):
        read_results(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda raw: raw["metrics"].pop("request_latency"),
            "a.jsonl:1: metrics: a request without error lacks request_latency",
        ),
        (lambda raw: raw["metrics"].pop("time_to_first_token"), "make the file with --streaming"),
        (lambda raw: raw["metrics"]["request_latency"].update(unit="s"), "'s'; allowed: in 'ms'"),
        (
            lambda raw: raw["metadata"].update(request_start_ns="now"),
            'a.jsonl:1: metadata.request_start_ns: "now" is not allowed; allowed: int$',
        ),
        (lambda raw: raw["metadata"].update(benchmark_phase="warmup"), "all records belong to the warm-up"),
    ],
)
def test_bad_records_of_aiperf_are_named(tmp_path, change, message):
    record = aiperf_records(served())[0]
    change(record)
    with pytest.raises(ValueError, match=message):
        read_results(tool_files.write(tmp_path / "a.jsonl", record))


def test_the_warm_up_of_aiperf_is_left_out(tmp_path):
    records = aiperf_records(served())
    records[0]["metadata"]["benchmark_phase"] = "warmup"
    (result,) = read_results(tool_files.write(tmp_path / "a.jsonl", *records))
    assert len(result.requests) == 11 and result.notes == ["1 warm-up records omitted"]


def test_lines_end_where_json_says(tmp_path):
    """Not at a line separator of Unicode, which aiperf writes as it is."""
    records = aiperf_records(served(failed=(0,)))
    records[0]["error"]["message"] = said = "no\u2028such\u0085model"
    path = tmp_path / "a.jsonl"
    path.write_text("\r\n".join(json.dumps(one, ensure_ascii=False) for one in records), encoding="utf-8", newline="")
    (result,) = read_results(path)
    assert [one.error for one in result.requests if one.error] == [said]


def test_bad_reports_of_guidellm_are_named(tmp_path):
    raw = guidellm_report(served())
    raw["benchmarks"][0]["requests"]["successful"].pop()
    with pytest.raises(ValueError, match="has 11 of 12 requests; make it without sample_size"):
        read_results(tool_files.write(tmp_path / "g.json", raw))
    raw = guidellm_report(served())
    raw["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"]["first_token_iteration"] = None
    with pytest.raises(ValueError, match="g.json, benchmark 1: a successful request lacks"):
        read_results(tool_files.write(tmp_path / "g.json", raw))


def test_a_body_that_nests_too_deep_is_as_one_that_is_not_there(tmp_path):
    raw = guidellm_report(served())
    for one in raw["benchmarks"][0]["requests"]["successful"]:
        one["request_args"] = "[" * 100_000
    (result,) = read_results(tool_files.write(tmp_path / "g.json", raw))
    assert {one.prompt for one in result.requests} == {""} and result.meta.model is None


def test_waiting_for_a_free_stream_is_no_queue_of_guidellm(tmp_path):
    raw = guidellm_report(served(), strategy={"type_": "concurrent", "streams": 4})
    (result,) = read_results(tool_files.write(tmp_path / "g.json", raw))
    assert result.meta.max_concurrency == 4 and result.meta.model == "org/model"
    assert {one.queue_s for one in result.requests} == {None}


def test_what_sglang_says_of_its_server_is_kept(tmp_path):
    run = imported([tool_files.write(tmp_path / "s.jsonl", sglang_bench(served(), tag="mine"))], tmp_path)
    arm = run.record.arm("mine")
    assert (arm.strategy, arm.config.num_drafts, arm.config.engine) == ("eagle3", 3, "sglang")
    assert arm.engine.version == "0.5.23" and run.record.model.name == "org/model"
    assert run.record.workload.name == "sharegpt" and run.record.sampling.max_concurrency == 1


def test_labels(files, tmp_path):
    (tmp_path / "other").mkdir()
    other = tool_files.write(tmp_path / "other" / "plain.json", vllm_bench(served(num=3, num_drafts=0)))
    run = imported([*files, other], tmp_path)
    assert [arm.label for arm in run.record.arms] == ["plain", "eagle", "plain (2)"]
    run = imported(files, tmp_path, labels=["a", "b"], baseline="b")
    assert run.record.arm("a").imported.baseline == "b" and run.record.arm("b").imported.baseline is None
    with pytest.raises(ValueError, match="label: 1 for 2 files"):
        imported(files, tmp_path, labels=["a"])
    with pytest.raises(ValueError, match="label: 'a' is given twice; allowed: a different one for each file"):
        imported(files, tmp_path, labels=["a", "a"])


def test_the_baseline_is_a_file_or_a_label(files, tmp_path):
    for name in (str(files[1]), "eagle.json", "eagle"):
        assert set(baselines(imported(files, tmp_path, baseline=name))) == {"eagle", None}
    assert baselines(imported(files, tmp_path)) == [None, "plain"]
    assert baselines(imported(files, tmp_path, meta=["eagle:strategy=no-spec"])) == ["eagle", None]
    with pytest.raises(
        ValueError, match=r"baseline: 'eagel' matches none of these \(did you mean 'eagle'\?\); allowed: plain"
    ):
        imported(files, tmp_path, baseline="eagel")
    with pytest.raises(ValueError, match="matches several of these"):
        twice = tool_files.write(tmp_path / "twice.json", vllm_bench(served()), vllm_bench(served(num_drafts=0)))
        imported([twice], tmp_path, baseline="twice.json")


def baselines(run):
    return [arm.imported.baseline for arm in run.record.arms]


def test_meta_says_what_the_files_do_not(files, tmp_path):
    given = ["hardware=NVIDIA H200", "temperature=0", "dataset=sharegpt", "engine_version=0.32.0"]
    own = ["eagle.json:num_speculative_tokens=3", "eagle:strategy=eagle3", "plain:strategy=no-spec"]
    own.append("eagle:command=vllm serve M --speculative-config {}")
    run = imported(files, tmp_path, meta=[*given, *own])
    assert run.record.environment.describe_hardware() == "1x NVIDIA H200"
    assert run.record.sampling.temperature == 0 and run.record.workload.name == "sharegpt"
    plain, eagle = run.record.arms
    assert (eagle.strategy, eagle.config.num_drafts, plain.config.num_drafts) == ("eagle3", 3, None)
    assert eagle.engine.version == "0.32.0" and eagle.engine.config == {
        "command": "vllm serve M --speculative-config {}"
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model", "meta: 'model' is not KEY=VALUE"),
        ("hardware=", "is not KEY=VALUE"),
        ("modle=x", r"meta: 'modle' is not known \(did you mean 'model'\?\); allowed: model, hardware"),
        (
            "other:hardware=x",
            "meta: 'other:hardware' is not known: 'other' is neither a file nor a label; allowed: eagle, plain",
        ),
        ("other:modle=x", r"meta: 'other:modle' is not known"),
        (
            "num_speculative_tokens=three",
            "num_speculative_tokens='three' is not allowed; allowed: a whole number of at least 0",
        ),
        ("max_concurrency=0", "allowed: a whole number of at least 1"),
        ("temperature=nan", "temperature='nan' is not allowed"),
        ("model=another", "meta: model=another: plain already has 'org/model'"),
    ],
)
def test_meta_is_checked(files, tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        imported(files, tmp_path, meta=[text])
    assert not (tmp_path / "runs").exists()


def test_requests_of_other_lengths_are_not_paired(files, tmp_path):
    other = vllm_bench(served())
    other["input_lens"][2] += 1
    files.append(tool_files.write(tmp_path / "other.json", other))
    run = imported(files, tmp_path)
    arms = summaries(run)
    found = arms["other"].speedup
    assert found.num_pairs == 0 and arms["eagle"].speedup.num_pairs == 12
    assert any("not paired: 1 prompts have different lengths, the first is request 3" in m for m in arms["other"].marks)
    assert found.method.startswith("ratio of geometric means of TPOT over requests that are not paired; Welch")
    # Welch's interval by hand, over the logarithms of both samples.
    a, b = (logs(run, label) for label in ("plain", "other"))
    means = [sum(x) / len(x) for x in (a, b)]
    variances = [sum((x - m) ** 2 for x in xs) / (len(xs) - 1) / len(xs) for xs, m in zip((a, b), means, strict=True)]
    freedom = sum(variances) ** 2 / sum(v**2 / 11 for v in variances)
    assert 11 < freedom < 12  # t of 11 and 12 degrees of freedom: 2.201 and 2.179
    assert found.tpot_ratio == pytest.approx(math.exp(means[0] - means[1]))
    half = math.log(found.tpot_ratio_high / found.tpot_ratio_low) / 2
    assert 2.179 <= half / math.sqrt(sum(variances)) <= 2.201


def logs(run, label):
    rows = run.frames.requests[run.frames.requests["arm"] == label]
    return [math.log((r.t_last_ns - r.t_first_ns) / (r.num_output_tokens - 1)) for r in rows.itertuples()]


def test_another_number_of_requests_is_not_paired(files, tmp_path):
    files.append(tool_files.write(tmp_path / "few.json", vllm_bench(served(num=5))))
    marks = summaries(imported(files, tmp_path))["few"].marks
    assert "requests not paired: 5 and 12" in marks


def test_another_load_has_no_factor(files, tmp_path):
    files.append(tool_files.write(tmp_path / "load.json", vllm_bench(served(), max_concurrency=8)))
    arm = summaries(imported(files, tmp_path))["load"]
    assert arm.speedup is None and "no factor against plain: max_concurrency: 1 and 8" in arm.marks


def test_prompts_that_are_told_pair_in_any_order(tmp_path):
    plain, eagle = guidellm_report(served(num_drafts=0)), guidellm_report(served())
    for n, one in enumerate(eagle["benchmarks"][0]["requests"]["successful"]):
        one["info"]["timings"] = {k: v and v + 1000 * (n % 2) for k, v in one["info"]["timings"].items()}
    files = [tool_files.write(tmp_path / f"{n}.json", raw) for n, raw in enumerate((plain, eagle))]
    run = imported(files, tmp_path)
    assert any("12 of 12 requests paired by prompt" in mark for mark in summaries(run)["1"].marks)
    assert summaries(run)["1"].speedup.num_pairs == 12


def test_prompts_that_are_told_and_are_others_are_not_paired_by_position(tmp_path):
    """Random prompts of one length from two seeds."""
    plain, eagle = served(num_drafts=0), served()
    for n, one in enumerate(eagle):
        one.prompt = f"another prompt {n}"
    files = [tool_files.write(tmp_path / f"{n}.json", guidellm_report(one)) for n, one in enumerate((plain, eagle))]
    arm = summaries(imported(files, tmp_path))["1"]
    assert "requests not paired: no prompt of one is a prompt of the other" in arm.marks
    assert arm.speedup.num_pairs == 0


def test_compare_gives_an_interval_and_nobody_a_verdict(files, tmp_path):
    run = imported(files, tmp_path, baseline="eagle")
    rows = {row.arm: row for row in compare_runs([run]).rows}
    tpot = rows["plain"].comparisons["tpot_ms"]
    assert rows["plain"].baseline == "eagle" and tpot.num_pairs == 12 and tpot.verdict == "exploratory"
    assert tpot.low is not None and tpot.low < tpot.change < tpot.high
    # Chunks that a client saw are no steps of an engine.
    assert rows["plain"].comparisons["tokens_per_step"].num_pairs == 0
    assert any("not drift between them" in note for note in compare_runs([run]).notes)
    report = run_gates(parse_policy({"gate": {"tpot_ms": {}}, "baseline": "eagle"}), run)
    (gate,) = [one for one in report.results if one.gate == "tpot_ms"]
    assert (gate.status, report.exit_code) == ("no data", 4) and "not measured in turns" in gate.reason


def test_two_imports_are_told_to_go_together(files, tmp_path):
    runs = [imported([file], tmp_path) for file in files]
    assert any("import their files into one run" in note for note in compare_runs(runs).notes)


def test_every_file_is_a_row_on_the_site(files, tmp_path):
    totals = tool_files.write(tmp_path / "totals.json", without_detail(vllm_bench(served())))
    run = imported([*files, totals], tmp_path)
    build_site([run.path], tmp_path / "site")
    for page in ("compare.html", f"runs/{run.path.name}.html"):
        text = (tmp_path / "site" / page).read_text()
        assert all(f">{label}<" in text for label in ("plain", "eagle", "totals")), page


def test_an_import_of_before_is_still_one(files, tmp_path):
    """It stood beside its one arm."""
    path = imported(files[:1], tmp_path).path
    raw = json.loads((path / "run.json").read_text())
    told = raw["arms"][0].pop("imported")
    raw["imported"] = {**told, "date": None, "absent": ["hardware"], "reported": {"rates": [0.5]}}
    (path / "run.json").write_text(json.dumps(raw))
    record = RunDirectory.open(path).record
    assert record.is_imported and record.arms[0].imported.file == "plain.json"


def test_the_command(files, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    done = CliRunner().invoke(
        app, ["import", *map(str, files), "-o", str(tmp_path / "runs"), "--baseline", "plain.json"]
    )
    assert done.exit_code == 0, done.output
    assert "TPOT (x) [95% CI]" in done.output and "paired by position" in done.output
    assert "not the drift of the machine" in done.output and "run directory: " in done.output
    shown = CliRunner().invoke(app, ["show", str(next((tmp_path / "runs").iterdir())), "--format", "json"])
    assert [arm["label"] for arm in json.loads(shown.stdout)["arms"]] == ["plain", "eagle"]


def test_a_file_that_cannot_be_read_leaves_no_run(files, tmp_path):
    bad = tool_files.write(tmp_path / "bad.json", {"a": 1})
    done = CliRunner().invoke(app, ["import", *map(str, files), str(bad), "-o", str(tmp_path / "runs")])
    assert done.exit_code != 0 and not (tmp_path / "runs").exists()


def test_tokens_before_their_request_are_refused_before_anything_is_written(tmp_path):
    """A clock that was set back while a benchmark ran, and a request that ended before it began to answer."""
    report, records = guidellm_report(served()), aiperf_records(served())
    times = report["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"]
    times["first_token_iteration"] = times["request_start"] - 1
    records[0]["metrics"]["request_latency"]["value"] = 1.0
    del records[0]["metrics"]["inter_chunk_latency"]
    for objects in ([report], records):
        file = tool_files.write(tmp_path / "clock.json", *objects)
        with pytest.raises(ValueError, match=r"clock\.json: a request \(.*\) has its first token .* in this order"):
            imported([file], tmp_path)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("has_steps", "changes", "message"),
    [
        (True, {"per_step_accepted": [9] * 14}, "9 accepted of 3 drafts in one round"),
        (False, {"num_accepted_draft_tokens": 10_000}, "10000 accepted of 42 drafts"),
    ],
)
def test_more_accepted_than_drafted_tokens_are_refused(tmp_path, has_steps, changes, message):
    records = aiperf_records(served(), has_steps)
    records[0]["spec_decode_acceptance"] |= changes
    with pytest.raises(ValueError, match=rf"more\.json: a request \(.*\): its report .*: {message}"):
        imported([tool_files.write(tmp_path / "more.json", *records)], tmp_path)


def test_an_import_that_fails_leaves_nothing_behind(tmp_path):
    """A chunk with millions of tokens, which the table of steps refuses."""
    records = aiperf_records(served())
    records[0]["metrics"]["output_sequence_length"]["value"] = 2**25
    del records[0]["spec_decode_acceptance"]
    with pytest.raises(ValueError, match="num_emitted is 335.*; allowed: 0 to"):
        imported([tool_files.write(tmp_path / "much.json", *records)], tmp_path)
    assert not list((tmp_path / "runs").iterdir())


def test_more_gaps_than_tokens_are_no_times_of_tokens(tmp_path):
    """SGLang's client writes a gap for each token; the server's count of this one is smaller."""
    gaps = [[0.01] * 4 + [0.02] * 4]
    raw = sglang_bench(served(num=1), output_lens=[4], ttfts=[0.1], itls=gaps, total_output_tokens=4, duration=1.0)
    run = imported([tool_files.write(tmp_path / "few.json", raw)], tmp_path)
    (block,) = run.figures.values()
    assert block["itl_ms.mean"] is None and block["tpot_ms.mean"] == pytest.approx(40)
