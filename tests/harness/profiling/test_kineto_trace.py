"""Kineto traces: the twin of an nsys trace gives the same figures; a real file of the torch profiler parses."""

from __future__ import annotations

import gzip
import json

import pytest
from profiling.synthetic import spec_trace, write_kineto, write_nsys
from profiling.test_nsys_trace import refused, without_source

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.chrome_json import ChromeTrace, us_to_ns
from specbench.harness.profiling.rules import PhaseRules
from specbench.reports.profile.diff_document import diff_document
from specbench.reports.profile.report import profile_document
from specbench.reports.terminal import plain_document

RULES = PhaseRules.shipped()


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "anything"])
def test_the_twin_says_the_same(tmp_path, name):
    nsys = analyse_trace(write_nsys(tmp_path / "t.sqlite", spec_trace()), rules=RULES)
    kineto = analyse_trace(write_kineto(tmp_path / name, spec_trace()), rules=RULES)
    assert without_source(kineto) == without_source(nsys)
    source = kineto.source
    assert (source.kind, source.tool, source.devices) == ("kineto", "Kineto, CUPTI 26", ("NVIDIA H200",))
    assert source.command is None


def test_events_alone_are_a_trace(tmp_path):
    path = write_kineto(tmp_path / "t.json", spec_trace())
    whole = analyse_trace(path, rules=RULES)
    path.write_text(json.dumps(json.loads(path.read_text())["traceEvents"]))
    assert without_source(analyse_trace(path, rules=RULES)) == without_source(whole)


def test_calls_whose_threads_are_numbered_otherwise_are_matched_by_time(tmp_path):
    path = write_kineto(tmp_path / "t.json", spec_trace())
    whole = analyse_trace(path, rules=RULES)
    raw = json.loads(path.read_text())
    for event in raw["traceEvents"]:
        if event.get("cat") == "cuda_runtime":
            event["tid"] = 1234567
    path.write_text(json.dumps(raw))
    profile = analyse_trace(path, rules=RULES)
    assert profile.phases == whole.phases and profile.graph == whole.graph and profile.syncs == whole.syncs
    assert any("by time alone" in note for note in profile.quality.notes)


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (7, 7_000),
        ("0.001", 1),
        ("198093488368.463", 198_093_488_368_463),
        ("1743521598000000.125", 1_743_521_598_000_000_125),
        ("2.5", 2_500),
        ("-0.500", -500),
        ("1.5e3", 1_500_000),
        ("12.5e3", 12_500_000),
        ("3.0004", 3_000),
    ],
)
def test_microseconds(value, ns):
    assert us_to_ns(value) == ns


def test_numbers_between_events_and_odd_spacing(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('\n { "a" : 1.5 , "traceEvents"\n: [ {"x": [1, {"y": "]"}]}\n,\n{"z": 2.25} , 3 ] , "b": null }\n')
    trace = ChromeTrace(path, "t.json")
    assert list(trace) == [{"x": [1, {"y": "]"}]}, {"z": "2.25"}]
    assert trace.header == {"a": "1.5", "b": None}


@pytest.mark.parametrize("share", [0.001, 0.2, 0.6, 0.999])
def test_truncated_json(tmp_path, share):
    path = write_kineto(tmp_path / "t.json", spec_trace())
    data = path.read_bytes()
    path.write_bytes(data[: max(2, int(len(data) * share))])
    assert "is truncated" in refused(path)
    path.write_bytes(gzip.compress(data)[: max(40, int(len(data) * share * 0.01))])
    assert "cut short" in refused(path)


def test_files_that_hold_something_else(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"results": []}')
    assert "no traceEvents" in refused(path)
    path.write_text('{"traceEvents": []}')
    assert "no GPU kernels" in refused(path)


@pytest.mark.parametrize(
    ("category", "said"),
    [("user_annotation", "no host ranges"), ("cuda_runtime", "no CUDA API calls"), ("kernel", "no GPU")],
)
def test_what_is_missing_is_said(tmp_path, category, said):
    path = write_kineto(tmp_path / "t.json", spec_trace())
    raw = json.loads(path.read_text())
    raw["traceEvents"] = [e for e in raw["traceEvents"] if e.get("cat") != category]
    path.write_text(json.dumps(raw))
    assert said in refused(path)


def test_files_of_several_processes_are_refused(tmp_path):
    path = write_kineto(tmp_path / "t.json", spec_trace())
    raw = json.loads(path.read_text())
    next(e for e in raw["traceEvents"] if e.get("cat") == "cuda_runtime")["pid"] = 77
    path.write_text(json.dumps(raw))
    assert "of 2 processes" in refused(path)


def test_a_real_profile_of_a_cpu_parses_up_to_the_missing_kernels(tmp_path):
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for number in range(2):
            with record_function(f"specbench:step {number}"), record_function("specbench:verify"):
                torch.ones(4, 4) @ torch.ones(4, 4)
    path = tmp_path / "cpu.json"
    profiler.export_chrome_trace(str(path))
    names = {e["name"] for e in ChromeTrace(path, path.name) if e.get("cat") == "user_annotation"}
    assert names == {"specbench:step 0", "specbench:step 1", "specbench:verify"}
    assert "no GPU kernels: profiled on a CPU" in refused(path)


def changed(path, cat: str, **fields):
    """One event of the category, changed; None takes a field away."""
    raw = json.loads(path.read_text())
    event = next(event for event in raw["traceEvents"] if event.get("cat") == cat)
    event.update(fields)
    raw["traceEvents"] = [{k: v for k, v in e.items() if v is not None} for e in raw["traceEvents"]]
    path.write_text(json.dumps(raw))
    return path


@pytest.mark.parametrize("cat", ["kernel", "cuda_runtime", "user_annotation"])
@pytest.mark.parametrize(
    "fields",
    [
        *({"ts": bad} for bad in (None, "abc", float("nan"), float("inf"), 1e40, [], {}, "1e999999999", 1 << 70)),
        *({"dur": bad} for bad in (1e25, "x", [], {"a": 1})),
        *({"name": bad} for bad in (None, 5, ["x"], {})),
    ],
)
def test_an_event_without_name_or_times_is_named(tmp_path, cat, fields):
    path = changed(write_kineto(tmp_path / "t.json", spec_trace()), cat, **fields)
    with pytest.raises(ValueError, match=r"^trace: t\.json (has an event|is truncated)"):
        analyse_trace(path, rules=RULES)


@pytest.mark.parametrize("value", [1 << 80, -1, "x", 1.5, [1], {"a": 1}, True])
@pytest.mark.parametrize("place", ["pid", "tid", "correlation", "device", "stream", "graph node id"])
def test_odd_numbers_of_an_event_are_no_traceback(tmp_path, place, value):
    path = write_kineto(tmp_path / "t.json", spec_trace())
    for cat in ("kernel", "cuda_runtime", "user_annotation"):
        args = {} if place in ("pid", "tid") else {"args": {place: value}}
        changed(path, cat, **(args or {place: value}))
    try:
        assert analyse_trace(path, rules=RULES).round_ns > 0
    except ValueError as error:
        assert "t.json" in str(error)


def test_devices_and_arguments_of_another_shape(tmp_path):
    path = changed(write_kineto(tmp_path / "t.json", spec_trace()), "kernel", args=[1])
    raw = json.loads(path.read_text())
    path.write_text(json.dumps({**raw, "deviceProperties": [5, {"id": [1], "name": "x"}, {"id": 0, "name": "y"}]}))
    assert analyse_trace(path, rules=RULES).source.devices == ("y",)


def frames(path, *given):
    """Adds frames of Python (name, begin and end in us) on the thread of the calls; returns the path."""
    raw = json.loads(path.read_text())
    call = next(e for e in raw["traceEvents"] if e.get("cat") == "cuda_runtime")
    own = {"ph": "X", "cat": "python_function", "pid": call["pid"], "tid": call["tid"]}
    raw["traceEvents"] += [{**own, "name": name, "ts": t0, "dur": t1 - t0} for name, t0, t1 in given]
    path.write_text(json.dumps(raw))
    return path


def test_waits_by_the_line_that_waits(tmp_path):
    path = write_kineto(tmp_path / "t.json", spec_trace())
    calls = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "cuda_runtime"]
    (*_, last) = [e for e in calls if "Synchronize" in e["name"]]
    begin, end = float(last["ts"]), float(last["ts"]) + float(last["dur"])
    whole = min(float(e["ts"]) for e in calls), max(float(e["ts"]) + float(e["dur"]) for e in calls) + 9
    known = analyse_trace(path, rules=RULES)
    assert {sync.site for sync in known.syncs} == {""}
    frames(
        path,
        ("engine/core.py(7): step", *whole),
        ("engine/runner.py(42): read", begin - 3, end + 1),
        ("torch/_tensor.py(9): tolist", begin - 2, end + 0.5),  # inside, but torch's own
        ("<built-in method tolist>", begin - 1, end + 0.4),
        ("engine/late.py(1): other", end + 1, end + 2),
    )
    found = analyse_trace(path, rules=RULES)
    sites = {sync.site for sync in found.syncs}
    assert sites == {"engine/core.py(7): step", "engine/runner.py(42): read"}
    assert found.syncs_per_round == known.syncs_per_round
    assert sum(s.wait_ns for s in found.syncs) == sum(s.wait_ns for s in known.syncs)
    assert "engine/runner.py(42): read" in plain_document(profile_document(found, "Profile: eagle"))
    assert "call site" not in plain_document(profile_document(known, "Profile: eagle"))
    assert "call site" in plain_document(diff_document(known, found, ("a", "b")))
