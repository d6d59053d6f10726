import io
import json

import pytest
from rich.console import Console
from run_samples import begun, chain_block, sample_run

from specbench.harness.store.files import json_text
from specbench.harness.store.inputs_record import ModelRecord, SamplingRecord
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RUN_SCHEMA
from specbench.reports.cells import compact, milliseconds, number, percent, rates
from specbench.reports.charts.pictures import wrapped
from specbench.reports.markdown import escape_markdown, markdown_result
from specbench.reports.run.comparison import comparison_table
from specbench.reports.run.document import markdown_report
from specbench.reports.run.json_report import json_report
from specbench.reports.run.report import write_reports
from specbench.reports.run.view import view_run
from specbench.reports.terminal import plain_result, print_result

ODD = "eagle:k=4,note=<b>x|y</b>"


@pytest.fixture
def run(tmp_path):
    return sample_run(tmp_path)


def test_plain_table_has_a_row_an_arm_and_what_is_needed_to_repeat_it(run):
    text = plain_result(comparison_table(view_run(run)))
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["no-spec", ODD, "naive-eagle"]
    arm = view_run(run).arms[1]
    assert f"{arm.median('tps'):.1f} ({arm.speedup.tps_ratio:.2f}x)" in lines[3]
    assert lines[3].endswith("synthetic")
    assert lines[4].endswith("failed: RuntimeError: graph `one` refused | no GPU")
    for piece in ("toy, first 4", "ab" * 32, "name=toy-model", "temperature=0.0, seed=42", "Test CPU", "'it'"):
        assert piece in text


def test_markdown_shows_hostile_labels_literally(run):
    table = comparison_table(view_run(run))
    text = markdown_result(table)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert "<b>" not in text.replace("`", "")
    assert r"&lt;b&gt;x\|y&lt;/b&gt;" in rows[3]
    for row in rows:
        assert row.replace(r"\|", "").count("|") == len(table.headers) + 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("<script>", "&lt;script&gt;"),
        ("a_b*c", r"a\_b\*c"),
        ("[x](y)", r"\[x\](y)"),
        ("two\nlines", "two lines"),
        ("&amp;", "&amp;amp;"),
        ("back\\slash", r"back\\slash"),
        ("@everyone (@org/team)", "@&#8203;everyone (@&#8203;org/team)"),
        ("at @ 3 GHz", "at @ 3 GHz"),
    ],
)
def test_escape_markdown(text, shown):
    assert escape_markdown(text) == shown


@pytest.mark.parametrize("width", [60, 80, 120, 240])
def test_terminal_table_shows_every_arm_and_mark_at_any_width(run, width):
    console = Console(width=width, force_terminal=True, record=True, file=io.StringIO())
    print_result(comparison_table(view_run(run)), console)
    text = console.export_text()
    for piece in ("no-spec", ODD, "naive-eagle", "failed: RuntimeError", "synthetic", "1.77x", "2.52 [2.33, 2.67]"):
        assert piece in text


def test_labels_are_not_rich_markup(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("[red]no-spec[/red]"))
    console = Console(width=240, force_terminal=True, record=True, file=io.StringIO())
    print_result(comparison_table(view_run(run)), console)
    assert "[red]no-spec[/red]" in console.export_text()


def test_json_report_is_strict_and_whole(run):
    def refuse(name):
        raise AssertionError(name)

    report = json.loads(json_text(json_report(view_run(run))), parse_constant=refuse)
    assert report["run"]["schema"] == RUN_SCHEMA and len(report["arms"]) == 3 and len(report["blocks"]) == 4
    assert report["arms"][1]["speedup"]["tps_ratio"] == pytest.approx(1.768, abs=1e-3)
    assert report["arms"][2]["error"].startswith("RuntimeError")


def test_reports_of_a_running_and_a_finished_run_agree(run):
    before = json_report(view_run(run))["arms"]
    run.finish(None)
    assert json_report(view_run(run.path))["arms"] == before


def test_write_reports_leaves_text_json_and_pictures(run):
    written = write_reports(run)
    names = [path.relative_to(run.path).as_posix() for path in written]
    pictures = ["tokens_per_second", "acceptance_by_position", "accepted_length", "phases"]
    assert names == ["report.md", "report.json", *(f"plots/{name}.png" for name in pictures)]
    for path in written[2:]:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000
    text = (run.path / "report.md").read_text()
    assert all(f"](plots/{name}.png)" in text for name in pictures)


def test_synthetic_rows_are_marked_in_every_table(run):
    rows = [line for line in markdown_report(view_run(run)).splitlines() if "x\\|y" in line and line.startswith("|")]
    assert len(rows) >= 8 and all("synthetic" in row for row in rows)


def test_reports_without_any_measured_arm(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("no-spec", "eagle"))
    run.fail_blocks([("no-spec", 0)], "boom")
    written = write_reports(run)
    assert [path.name for path in written] == ["report.md", "report.json"]
    assert "failed: boom" in written[0].read_text() and "not run" in written[0].read_text()


def test_a_picture_that_no_longer_applies_is_removed(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("eagle"))
    run.append("eagle", 0, **chain_block([1, 2]))
    assert (run.path / "plots/phases.png") in write_reports(run)
    run.fail_blocks([("eagle", 0)], "boom")
    write_reports(run)
    assert list((run.path / "plots").iterdir()) == []


def test_long_labels_are_wrapped_and_never_cut():
    label = "eagle:k=4,drafter=unpadded,attention=flashinfer,graph=piecewise " + "x" * 50
    assert wrapped(label, 30).replace("\n", "") == label.replace(" ", "")
    assert max(map(len, wrapped(label, 30).splitlines())) <= 30
    assert wrapped("a$b$", 30) == r"a\$b\$"


def test_numbers():
    assert [number(v) for v in (None, 0.38123, 1.0, 12.345, 23266.4)] == ["-", "0.3812", "1", "12.35", "23,266"]
    assert [milliseconds(v) for v in (None, 8.05, 20.0, 1234.5)] == ["-", "8.050", "20.00", "1,234"]
    assert percent(-0.034) == "-3.4%" and rates([0.5, None]) == "0.50 -" and rates([]) == "-"
    assert compact({"model": {"name": "x", "revision": None}, "stop": []}) == "model=name=x"


def test_top_level_model_and_sampling_come_before_the_configuration(tmp_path):
    more = {"model": ModelRecord(name="other"), "sampling": SamplingRecord(seed=7, ignore_eos=True)}
    run = RunDirectory.create(tmp_path, "x", begun("eagle", **more))
    run.append("eagle", 0, **chain_block([1, 2]))
    text = plain_result(comparison_table(view_run(run)))
    assert "model: name=other" in text and "sampling: ignore_eos=True, seed=7" in text and "which inflates AL" in text
