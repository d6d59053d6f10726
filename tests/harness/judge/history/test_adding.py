"""One run id, many copies: unfinished ones make way, the same ones meet, others are refused, whoever comes first."""

from __future__ import annotations

import errno
import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from ab_samples import experiment
from compare_samples import ARMS, Machine, make_run
from known_results import results

from specbench.harness.judge.history.accepted import read_accepted
from specbench.harness.judge.history.adding import ADDED, ALREADY, REPLACED, add_run
from specbench.harness.judge.history.store import read_history
from specbench.harness.judge.stored import read_run
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.writing import CannotWriteError

SMALL = Machine(num_prompts=3, num_rounds=4, num_repeats=2)


@pytest.fixture
def finished(tmp_path) -> Path:
    return make_run(tmp_path / "finished", SMALL)


@pytest.fixture
def unfinished(tmp_path, finished) -> Path:
    """The run as it was before its last repeat: in parts, interrupted."""
    frames = RunDirectory.open(finished).frames()
    path = tmp_path / "unfinished" / finished.name
    path.mkdir(parents=True)
    raw = json.loads((finished / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**raw, "status": "interrupted", "files": {}}))
    run = RunDirectory.open(path)
    for arm in ARMS:
        requests, steps = (t[(t["arm"] == arm) & (t["repeat"] == 0)] for t in (frames.requests, frames.steps))
        kept = [{c: t[c].tolist() for c in t.columns if c not in ("arm", "repeat")} for t in (requests, steps)]
        run.append(arm, 0, *kept)
    return path


def add(history: Path, run: Path) -> str:
    return add_run(history, run).outcome


def status(history: Path, run: Path) -> str:
    return json.loads((history / "runs" / run.name / "run.json").read_text())["status"]


def test_a_run_that_has_gone_on_takes_its_own_place(tmp_path, unfinished, finished):
    history = tmp_path / "h"
    first = add_run(history, unfinished)
    assert (first.outcome, first.status) == (ADDED, "interrupted") and add(history, unfinished) == ALREADY
    assert add(history, finished) == REPLACED and status(history, finished) == "complete"
    assert not (history / "runs" / finished.name / "parts").exists(), "nothing of the unfinished copy is left"
    assert add(history, finished) == ALREADY and add(history, unfinished) == ALREADY
    assert status(history, finished) == "complete", "the older state does not come back"
    assert [p.name for p in (history / "runs").iterdir()] == [finished.name]
    assert {p.run_id for p in read_history(history).points} == {finished.name}


def test_a_run_whose_last_step_was_its_end(tmp_path, finished):
    killed = tmp_path / "killed" / finished.name
    shutil.copytree(finished, killed)
    raw = json.loads((killed / "run.json").read_text())
    (killed / "run.json").write_text(json.dumps({**raw, "status": "running"}))
    assert add(tmp_path / "h", killed) == ADDED and add(tmp_path / "h", finished) == REPLACED


def test_a_certificate_that_came_later(tmp_path, finished):
    add(tmp_path / "h", finished)
    (finished / "certificate.json").write_text('{"status": "complete", "certificates": []}')
    assert add(tmp_path / "h", finished) == REPLACED
    assert (tmp_path / "h" / "runs" / finished.name / "certificate.json").is_file()


@pytest.mark.parametrize("order", [1, -1], ids=["unfinished first", "finished first"])
def test_another_run_under_the_same_id_is_refused(tmp_path, unfinished, order):
    """Not the run that was begun: other times, whatever its id."""
    other = make_run(tmp_path / "other", Machine(noise_seed=1, num_prompts=3, num_rounds=4, num_repeats=2))
    raw = json.loads((other / "run.json").read_text())
    begun = json.loads((unfinished / "run.json").read_text())
    same = {key: begun[key] for key in ("run_id", "started_utc")}
    (other / "run.json").write_text(json.dumps({**raw, **same}))
    first, second = (unfinished, other)[::order]
    add(tmp_path / "h", first)
    before = status(tmp_path / "h", unfinished)
    with pytest.raises(ValueError, match="its raw tables differ; give it an id of its own or remove one"):
        add(tmp_path / "h", second)
    assert status(tmp_path / "h", unfinished) == before


def test_half_a_block_of_an_experiment_may_be_measured_again(tmp_path):
    """B's side of the last block was missing, so both sides are measured anew when it goes on."""
    begun = experiment(tmp_path / "begun", num_blocks=3, missing=[("B", 2)], finished=False).path
    ended = experiment(tmp_path / "ended", num_blocks=3, seed=1).path
    raw = json.loads((ended / "run.json").read_text())
    started = json.loads((begun / "run.json").read_text())
    same = {key: started[key] for key in ("run_id", "started_utc")}
    (ended / "run.json").write_text(json.dumps({**raw, **same}))
    assert add(tmp_path / "h", begun) == ADDED and add(tmp_path / "h", ended) == REPLACED


def test_what_changes_while_it_is_copied(tmp_path, finished, monkeypatch):
    def gone(*words, **more):
        raise shutil.Error([("parts/x", "y", "No such file")])

    monkeypatch.setattr("specbench.harness.judge.history.adding.shutil.copytree", gone)
    with pytest.raises(ValueError, match="changed while it was copied; add it when it has ended"):
        add(tmp_path / "h", finished)
    assert list((tmp_path / "h" / "runs").iterdir()) == []


def test_a_full_disk_is_not_a_run_that_changes(tmp_path, finished, monkeypatch):
    """It was told so, with the reason of every file; and the next run was tried."""

    def full(source, target, **more):
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr("specbench.harness.judge.history.adding.shutil.copy2", full)
    with pytest.raises(CannotWriteError, match=f"^history: cannot write to {tmp_path / 'h'}: No space left on device$"):
        add(tmp_path / "h", finished)
    assert list((tmp_path / "h" / "runs").iterdir()) == []


def test_jobs_with_one_run_in_two_states_at_once(tmp_path, unfinished, finished):
    """Processes, as CI jobs are: in the end the finished run is there, once, whoever was first."""
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
        for n in range(2):
            history = tmp_path / f"h{n}"
            jobs = [pool.submit(add, history, run) for run in (unfinished, finished) * 3]
            outcomes = [job.result() for job in jobs]
            assert outcomes.count(ADDED) == 1 and outcomes.count(REPLACED) <= 1
            assert [p.name for p in (history / "runs").iterdir()] == [finished.name]
            assert status(history, finished) == "complete" and not read_history(history).problems


# -- a run from somebody else ------------------------------------------------------------------------------------------


def assert_refused(tmp_path, run: Path, message: str) -> None:
    """And nothing of it has been written, in the history or beside it."""
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        add(tmp_path / "h", run)
    assert sorted(path for path in tmp_path.iterdir() if path.name != "h") == before
    assert not list((tmp_path / "h").rglob("*")) or list((tmp_path / "h").rglob("*")) == [tmp_path / "h" / "runs"]


@pytest.mark.parametrize("place", ["etclink", "plots/etclink", "children/deep/etclink", ".hidden"])
@pytest.mark.parametrize("to", ["/etc", "/etc/passwd", "itself", "/gone"])
def test_links_are_never_followed(tmp_path, finished, place, to):
    (finished / place).parent.mkdir(parents=True, exist_ok=True)
    (finished / place).symlink_to(finished if to == "itself" else to)
    assert_refused(tmp_path, finished, f"{place}: is a symbolic link, which is never followed")


def test_a_link_that_appears_while_it_is_copied(tmp_path, finished, monkeypatch):
    copytree = shutil.copytree

    def late(run, *words, **more):
        (Path(run) / "late").symlink_to("/etc")
        return copytree(run, *words, **more)

    monkeypatch.setattr("specbench.harness.judge.history.adding.shutil.copytree", late)
    assert_refused(tmp_path, finished, "changed while it was copied.*late: is a symbolic link")


@pytest.mark.parametrize("run_id", ["/absolute", "../..", "..", ".", "", ".hidden", "a/b", "a\\b", None, 7])
def test_a_run_id_that_is_a_path(tmp_path, finished, run_id):
    raw = json.loads((finished / "run.json").read_text())
    given = str(tmp_path / "elsewhere") if run_id == "/absolute" else run_id
    (finished / "run.json").write_text(json.dumps({**raw, "run_id": given}))
    allowed = "run_id: .* is not allowed; allowed: a name without"
    assert_refused(tmp_path, finished, allowed if isinstance(run_id, str) else "run_id: Expected `str`, got")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd"])
def test_files_that_lie_outside(tmp_path, finished, name):
    raw = json.loads((finished / "run.json").read_text())
    raw["files"][name] = "0"
    (finished / "run.json").write_text(json.dumps(raw))
    assert_refused(tmp_path, finished, f"files: '{name}' is not allowed")


@pytest.mark.parametrize("what", ["runs", "run"])
def test_links_in_the_history_are_not_written_through(tmp_path, finished, what):
    away = tmp_path / "away"
    away.mkdir()
    link = tmp_path / "h" / "runs" / (finished.name if what == "run" else "")
    link.parent.mkdir(parents=True)
    link.symlink_to(away)
    with pytest.raises(ValueError, match=f"{link}: is a symbolic link"):
        add(tmp_path / "h", finished)
    assert list(away.iterdir()) == []


def test_links_in_a_history_are_named_and_not_read(tmp_path, finished, unfinished):
    history = tmp_path / "h"
    add(history, finished)
    before = read_history(history).points
    (history / "runs" / "linked").symlink_to(unfinished)
    (history / ".index.json").unlink()
    (history / ".index.json").symlink_to(tmp_path / "index")
    found = read_history(history)
    assert found.points == before and not (tmp_path / "index").exists()
    assert [p.reason for p in found.problems] == [f"{history}/runs/linked: is a symbolic link, which is never followed"]
    (history / "history.toml").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="history.toml: is a symbolic link"):
        read_accepted(history)


def test_a_run_is_named_by_its_record_too(tmp_path, finished):
    assert add(tmp_path / "h", finished / "run.json") == ADDED and add(tmp_path / "h", finished) == ALREADY


def test_what_a_copy_leaves_behind_does_not_count(tmp_path, finished):
    """Pictures drawn in the history are not a reason to leave out a new certificate."""
    history = tmp_path / "h"
    add(history, finished)
    pictures = history / "runs" / finished.name / "plots"
    pictures.mkdir()
    (pictures / "a.png").write_bytes(b"png")
    (finished / "certificate.json").write_text('{"status": "complete", "certificates": []}')
    assert add(history, finished) == REPLACED


def test_blocks_of_a_resumed_run_that_was_killed_count(finished):
    """The stored results are those of the run before it was resumed."""
    run = RunDirectory.open(finished)
    run.finish(results(run.frames()))
    assert run.record.results is not None and run.record.files
    arms, before = {arm for arm, _ in run.done_blocks()}, len(read_run(finished).figures)
    run.resume()
    frames = run.frames()
    requests, steps = (t[(t["arm"] == min(arms)) & (t["repeat"] == 0)] for t in (frames.requests, frames.steps))
    kept = [{c: t[c].tolist() for c in t.columns if c not in ("arm", "repeat")} for t in (requests, steps)]
    run.append(min(arms), 7, *kept)
    assert len(read_run(finished).figures) == before + 1
