"""nsys exports: what differs between their versions changes nothing, and what is wrong with a file is said."""

from __future__ import annotations

import dataclasses
import os
import sqlite3

import pytest
from profiling.synthetic import Synth, spec_trace, write_nsys

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.rules import PhaseRules

RULES = PhaseRules.shipped()


def without_source(profile):
    """Of a profile what does not name the file."""
    return {f.name: getattr(profile, f.name) for f in dataclasses.fields(profile) if f.name != "source"}


@pytest.fixture
def plain(tmp_path):
    return without_source(analyse_trace(write_nsys(tmp_path / "plain.sqlite", spec_trace()), rules=RULES))


@pytest.mark.parametrize(
    "options",
    [
        dict(schema="3.25.0"),
        dict(by_text_id=True),
        dict(by_text_id=False),
        dict(without=["CUDA_GRAPH_NODE_EVENTS", "DIAGNOSTIC_EVENT", "TARGET_INFO_GPU", "META_DATA_CAPTURE"]),
        dict(extra_sql="ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME RENAME TO CUPTI_ACTIVITY_KIND_RUNTIME_V2"),
        dict(extra_sql="ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO CUPTI_ACTIVITY_KIND_KERNEL_V3"),
        dict(extra_sql="ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId"),
        dict(extra_sql="ALTER TABLE NVTX_EVENTS DROP COLUMN endGlobalTid"),
        dict(extra_sql="UPDATE NVTX_EVENTS SET eventType = 60, endGlobalTid = globalTid"),
    ],
    ids=str,
)
def test_versions_of_the_export_say_the_same(tmp_path, plain, options):
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", spec_trace(), **options), rules=RULES)
    assert without_source(profile) == plain


def test_ranges_that_never_ended_or_changed_threads_are_no_ranges(tmp_path, plain):
    more = (
        "INSERT INTO NVTX_EVENTS(start, end, eventType, text, globalTid) "
        "SELECT start, NULL, 59, 'specbench:accept', globalTid FROM NVTX_EVENTS LIMIT 1;"
        "INSERT INTO NVTX_EVENTS(start, end, eventType, text, globalTid, endGlobalTid) "
        "SELECT start, end + 9000000, 60, 'specbench:accept', globalTid, globalTid + 1 FROM NVTX_EVENTS LIMIT 1;"
    )
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=more), rules=RULES)
    assert without_source(profile) == plain


def test_the_trace_is_never_written_to(tmp_path):
    path = write_nsys(tmp_path / "t.sqlite", spec_trace())
    before = path.read_bytes()
    analyse_trace(path, rules=RULES)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["t.sqlite"]


def test_dropped_data_is_said(tmp_path):
    said = ("Some CUDA events were dropped.", "fine", "Not all NVTX events might have been collected.")
    rows = ", ".join(f"({i}, 0, 0, 1, '{text}', NULL)" for i, text in enumerate(said))
    sql = f"INSERT INTO DIAGNOSTIC_EVENT VALUES {rows}"
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=sql), rules=RULES)
    assert profile.quality.notes == (f"nsys: {said[2]}", f"nsys: {said[0]}")


def test_graphs_that_were_not_traced_by_node(tmp_path):
    sql = """
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
      streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE SELECT MIN(start), MAX(end), 0, 1, 7, correlationId, globalPid, 1
      FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL GROUP BY correlationId, globalPid;
    DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL;
    """
    from profiling.test_analysis import SUBJECT

    subject = dataclasses.replace(SUBJECT, claimed_parts={"later": "full"})
    path = write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=sql)
    profile = analyse_trace(path, rules=RULES, subject=subject)
    assert profile.graph.verdict == "cannot tell" and "--cuda-graph-trace=node" in profile.graph.reasons[0]
    verify = next(row for row in profile.phases if row.phase == "verify")
    assert (verify.kernels, verify.graph_launches, verify.graph_share_time) == (0, 1, 1)
    assert verify.gpu_busy_ns == 500_000
    assert any("not traced by node" in note for note in profile.quality.notes)


def test_replayed_nodes_without_a_correlation_number(tmp_path, plain):
    sql = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = 0 WHERE graphNodeId = 1000"
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=sql), rules=RULES)
    assert profile.phases == plain["phases"]
    assert profile.quality.notes == (
        "3 operations of graphs carry no correlation number; given to the replay last called before each",
    )


def test_operations_without_a_launch_are_counted_not_guessed(tmp_path):
    sql = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = 99999 WHERE rowid = 1"
    quality = analyse_trace(write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=sql), rules=RULES).quality
    assert (quality.num_ops_without_launch, quality.num_ops_without_round) == (1, 1)


# -- files that cannot be analysed ------------------------------------------------------------------------------------


def refused(path, rules=RULES):
    with pytest.raises(ValueError) as error:
        analyse_trace(path, rules=rules)
    assert str(error.value).startswith("trace: ") and path.name in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(schema="4.0.1"), "has export schema 4.0.1; allowed: 3.x"),
        (dict(without=["NVTX_EVENTS"]), "no NVTX ranges"),
        (dict(extra_sql="DELETE FROM NVTX_EVENTS"), "VLLM_NVTX_SCOPES_FOR_PROFILING=1"),
        (dict(without=["CUPTI_ACTIVITY_KIND_RUNTIME"]), "no CUDA API calls"),
        (dict(without=["CUPTI_ACTIVITY_KIND_KERNEL"]), "no GPU kernels"),
        (dict(without=["StringIds"]), "not an nsys export"),
        (
            dict(extra_sql="UPDATE NVTX_EVENTS SET text = 'fwd', textId = NULL"),
            "most frequent: 'fwd'); give --rules FILE",
        ),
        (dict(extra_sql="DELETE FROM NVTX_EVENTS WHERE text GLOB 'specbench:step*'"), "says where a step begins"),
        (
            dict(extra_sql="UPDATE NVTX_EVENTS SET globalTid = globalTid + 16777216"),
            "in a process that has no GPU work",
        ),
        (
            dict(extra_sql="UPDATE NVTX_EVENTS SET start = start + 9e9, end = end + 9e9"),
            "none of the 3 steps in t.sqlite launched",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_is_said(tmp_path, options, said):
    assert said in refused(write_nsys(tmp_path / "t.sqlite", spec_trace(), **options))


def test_wrong_kinds_of_file(tmp_path):
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).execute("CREATE TABLE t(a)").connection.commit()
    assert "a sqlite database, but not an nsys export" in refused(other)
    elf = tmp_path / "program"
    elf.write_bytes(b"\x7fELF" + bytes(100))
    assert "neither sqlite nor JSON; allowed: an nsys report (.nsys-rep)" in refused(elf)
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    assert "is empty" in refused(empty)
    assert "is not a file" in refused(tmp_path / "nowhere.sqlite")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.97])
def test_a_truncated_file(tmp_path, share):
    path = write_nsys(tmp_path / "t.sqlite", spec_trace(num_rounds=30))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "cut short" in refused(path)


# -- reports ----------------------------------------------------------------------------------------------------------


def fake_nsys(folder, monkeypatch, body):
    program = folder / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_report_is_exported_first(tmp_path, monkeypatch, plain):
    database = write_nsys(tmp_path / "made.sqlite", spec_trace())
    fake_nsys(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/argv; cp {database} "$7"')
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report of nsys")
    profile = analyse_trace(report, rules=RULES)
    assert without_source(profile) == plain
    assert (profile.source.file, profile.source.num_bytes) == ("run.nsys-rep", 14)
    argv = (tmp_path / "argv").read_text().split()
    assert argv[:5] == ["export", "--type", "sqlite", "--lazy=false", "--force-overwrite=true"] and argv[-1] == str(
        report
    )


def test_a_report_without_nsys_or_with_a_failing_one(tmp_path, monkeypatch):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report of nsys")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "nsys is not on the PATH" in refused(report)
    fake_nsys(tmp_path, monkeypatch, "echo 'Importer not found' >&2; exit 3")
    assert "(exit code 3): Importer not found" in refused(report)


def test_two_devices(tmp_path):
    s = Synth()
    for number in range(3):
        with s.range(f"specbench:step {number}"), s.range("specbench:verify"):
            s.launch("gemm", 50_000)
            s.launch("small", 1_000)
    small = "(SELECT id FROM StringIds WHERE value = 'small')"
    sql = f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE demangledName = {small}"
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", s, extra_sql=sql), rules=RULES)
    assert "2 GPUs in the process; idle times are those of GPU 0" in profile.quality.notes
    assert {bar.row for bar in profile.timeline} == {"host", "gpu0:7", "gpu1:7"}


def test_a_kernel_s_name_may_have_any_bytes(tmp_path):
    sql = "UPDATE StringIds SET value = CAST(x'67FF6D6D' AS TEXT) WHERE value = 'gemm'"
    s = Synth()
    for number in range(3):
        with s.range(f"specbench:step {number}"), s.range("specbench:verify"):
            s.launch("gemm", 50_000)
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", s, extra_sql=sql), rules=RULES)
    assert {bar.name for bar in profile.timeline if bar.row.startswith("gpu")} == {"g\ufffdmm"}


def test_names_that_are_numbers_are_read_as_text(tmp_path):
    sql = (
        "DROP TABLE TARGET_INFO_GPU; CREATE TABLE TARGET_INFO_GPU(cuDevice, name);"
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 7), (0, NULL);"
        "DROP TABLE META_DATA_CAPTURE; CREATE TABLE META_DATA_CAPTURE(name, value);"
        "INSERT INTO META_DATA_CAPTURE VALUES (1, 2), (NULL, 'x'), ('PROCESS_0:COMMAND', 3)"
    )
    source = analyse_trace(write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=sql), rules=RULES).source
    assert (source.devices, source.command) == (("7",), ("3",))


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"])
@pytest.mark.parametrize("times", ["start = -9223372036854775807", "end = 9223372036854775807"])
def test_times_that_no_clock_says_are_refused(tmp_path, table, times):
    path = write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=f"UPDATE {table} SET {times} WHERE rowid = 3")
    with pytest.raises(ValueError, match="t.sqlite has times beyond .* ns"):
        analyse_trace(path, rules=RULES)


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"])
def test_records_that_end_before_they_begin_are_left_out_and_counted(tmp_path, table):
    found = []
    for change in (f"DELETE FROM {table}", f"UPDATE {table} SET end = 0"):
        path = write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=f"{change} WHERE rowid = 3")
        found.append(analyse_trace(path, rules=RULES))
    assert found[1].phases == found[0].phases and found[1].syncs == found[0].syncs
    assert "1 records of the trace end before they begin and are left out" in found[1].quality.notes
