"""What a file names stays in its directory, and links are not followed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from run_samples import sample_run

from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.safe_paths import check_name, path_inside, refuse_links

OUTSIDE = (
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "..\\x",
    "C:\\x",
    "C:x",
    "\\\\host\\x",
    "a\0b",
    5,
    None,
    ["a"],
)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_path_that_leads_out_is_refused(tmp_path, name):
    with pytest.raises(
        ValueError, match="run.json: files: .* is not allowed; allowed: a relative path below"
    ) as refusal:
        path_inside(tmp_path, name, "run.json: files")
    assert repr(name) in str(refusal.value) and str(tmp_path) in str(refusal.value)


@pytest.mark.parametrize("name", ["a", "a/b.parquet", "..a", "a..b/c", "."])
def test_a_path_that_stays_inside(tmp_path, name):
    assert path_inside(tmp_path, name, "x") == tmp_path / name


def test_a_path_through_a_link_is_refused(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("s")
    (inside / "folder").symlink_to(tmp_path)
    (inside / "dangling").symlink_to(tmp_path / "gone")
    for name in ("folder", "folder/secret", "dangling"):
        with pytest.raises(ValueError, match="inside/(folder|dangling): is a symbolic link"):
            path_inside(inside, name, "x")


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/a", "a\\b", "a\0b", 5, None])
def test_names_of_directories(name):
    with pytest.raises(ValueError, match="run_id: .* is not allowed; allowed: a name without"):
        check_name(name, "run_id")
    check_name("20260102T030405Z-eagle=k.4-0a1b2c3d", "run_id")


def test_links_at_any_depth_are_found_and_the_top_may_be_one(tmp_path):
    (tmp_path / "run" / "a" / "b").mkdir(parents=True)
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    refuse_links(tmp_path / "latest")
    (tmp_path / "run" / "a" / "b" / "self").symlink_to(tmp_path / "run")
    for top in ("run", "latest"):
        with pytest.raises(ValueError, match=f"{top}/a/b/self: is a symbolic link, which is never followed"):
            refuse_links(tmp_path / top)


@pytest.fixture
def run(tmp_path) -> Path:
    return sample_run(tmp_path).path


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"run_id": "/tmp/elsewhere"}, "run.json: run_id: '/tmp/elsewhere' is not allowed"),
        ({"run_id": "../.."}, "run.json: run_id: '../..' is not allowed"),
        ({"run_id": 5}, "run.json: run_id: Expected `str`, got `int`"),
        ({"files": {"../../etc/passwd": "0"}}, "run.json: files: '../../etc/passwd' is not allowed"),
        ({"files": {"/etc/shadow": "0"}}, "run.json: files: '/etc/shadow' is not allowed"),
        ({"files": ["requests.parquet"]}, "run.json: files: Expected `object`, got `array`"),
    ],
)
def test_a_run_that_names_what_lies_outside_is_not_opened(run, entry, message):
    raw = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**raw, **entry}))
    with pytest.raises(ValueError, match=message):
        RunDirectory.open(run)


@pytest.mark.parametrize("name", ["run.json", "requests.parquet", "parts", "log/deep"])
def test_a_run_with_a_link_is_not_opened(run, tmp_path, name):
    path, away = run / name, tmp_path / "away"
    if path.exists():
        path.rename(away)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(away)
    with pytest.raises(ValueError, match=f"{name}: is a symbolic link" if away.exists() else "symbolic link"):
        RunDirectory.open(run)


def test_the_run_itself_may_be_a_link_that_somebody_typed(run, tmp_path):
    (tmp_path / "latest").symlink_to(run)
    assert RunDirectory.open(tmp_path / "latest").record.run_id == run.name


def test_the_tag_of_a_block_cannot_lead_to_another_folder(run, tmp_path):
    """The parts of a block are found by the tag of one of them."""
    (part,) = [path for path in (run / "parts").glob("requests-no-spec-*-0.parquet")]
    table = pq.read_table(part)
    tag = json.loads(table.schema.metadata[b"specbench.block"])
    for repeat in ("../../../away", "/../../away"):
        hostile = json.dumps({**tag, "repeat": repeat})
        pq.write_table(table.replace_schema_metadata({"specbench.block": hostile}), part)
        with pytest.raises(ValueError, match=f"{part.name}: its repeat is {repeat!r}; allowed: a whole number"):
            RunDirectory.open(run).frames()
