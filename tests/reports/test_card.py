"""The card of a run: what it says, and that every text lies inside the picture and beside the others."""

from __future__ import annotations

import errno
import json
from dataclasses import replace

import pytest
from ab_samples import experiment
from known_results import results
from matplotlib.figure import Figure
from matplotlib.image import imread
from run_samples import begun, chain_block, sample_run

from specbench.harness.cli.ab import judge_and_write
from specbench.harness.store.codec import write_document
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.charts.card import HEIGHT_PX, MARGIN_PX, WIDTH_PX, card_figure
from specbench.reports.charts.pictures import palette
from specbench.reports.run.answer import answer
from specbench.reports.run.view import view_run
from specbench.reports.site.card import card_of

LONG = "eagle:k=4,head=random,state_update=fused,graph=full_and_piecewise,drafter=unpadded,attention=flash-attention"


def boxes(card) -> list[list[float]]:
    """Left, lower, right and upper end in pixels of every text, and of the chart with all that stands beside it."""
    drawn = card_figure(card)
    found = [text.get_window_extent() for text in drawn.texts if text.get_text()]
    found += [axes.get_tightbbox() for axes in drawn.axes]
    return [[box.x0, box.y0, box.x1, box.y1] for box in found]


def is_whole(found) -> bool:
    """`found`: boxes. Inside the margins: half a pixel is how widths are rounded."""
    left, right, below, above = MARGIN_PX - 0.5, WIDTH_PX - MARGIN_PX + 0.5, 15.5, HEIGHT_PX - 15.5
    return all(x0 >= left and y0 >= below and x1 <= right and y1 <= above for x0, y0, x1, y1 in found)


def lies_well(card) -> bool:
    """Every text and the chart inside the margins and beside the others."""
    found = boxes(card)
    return is_whole(found) and not overlaps(found)


def overlaps(found) -> int:
    pairs = [(one, other) for n, one in enumerate(found) for other in found[n + 1 :]]
    return sum(min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 1 for a, b in pairs)


def long_run(folder):
    """Six arms under long names; the command names them all."""
    labels = [f"{LONG},block={n}" for n in range(6)]
    run = RunDirectory.create(folder, "long", begun("no-spec", *labels))
    for repeat in range(2):
        run.append("no-spec", repeat, **chain_block([0] * 12, k=0, round_ms=8.0 + 0.1 * repeat))
        for label in labels:
            run.append(label, repeat, **chain_block([4, 0, 2, 1, 3, 0], round_ms=10.0 + 0.1 * repeat))
    run.finish(results(run.frames()))
    file = run.path / "run.json"
    raw = json.loads(file.read_text())
    raw["argv"] = ["specbench", "run", *(word for label in labels for word in ("-s", label))]
    file.write_text(json.dumps(raw))
    return run.path


def test_a_run_says_its_answer_factor_acceptance_outputs_hardware_and_command(tmp_path):
    run = sample_run(tmp_path)
    card, view = card_of(run.path), view_run(run)
    best = max(
        (arm for arm in view.arms if arm.speedup and arm.speedup.tpot_ratio), key=lambda arm: arm.speedup.tpot_ratio
    )
    factor, acceptance, outputs = card.facts
    assert card.answer == answer(view) and factor.value == f"{best.speedup.tpot_ratio:.2f}x"
    assert f"[{best.speedup.tpot_ratio_low:.2f}, {best.speedup.tpot_ratio_high:.2f}]" in factor.note
    assert acceptance.value == f"{best.acceptance.acceptance_length:.2f}" and outputs.value in card.answer
    assert view.record.environment.describe_hardware() in card.about and card.command == view.record.command
    assert card.chart is not None and card.chart.frame["x"].max() == best.speedup.tpot_ratio
    said = " ".join(" ".join(text.get_text() for text in card_figure(card).texts).split())
    for words in (card.answer, factor.value, acceptance.value, outputs.value, card.about, card.command):
        assert " ".join(words.split()) in said


def test_an_experiment_says_its_change_and_its_cautions(tmp_path):
    run = experiment(tmp_path, change=0.03)
    with pytest.raises(ValueError, match="card: .* is not judged yet: specbench ab --resume"):
        card_of(run.path)
    record = judge_and_write(run)
    card = card_of(run.path)
    tpot = next(c for c in record.metrics if c.metric.name == "TPOT")
    assert card.facts[0].name == "TPOT" and card.facts[0].value == f"{100 * tpot.change:+.2f}%"
    assert card.facts[0].value in card.answer and len(card.facts) == 3 and is_whole(boxes(card))


@pytest.mark.parametrize("make", [lambda folder: sample_run(folder).path, long_run], ids=["sample", "long"])
def test_no_text_is_cut_and_none_covers_another(tmp_path, make):
    card = card_of(make(tmp_path))
    for shown in (card, replace(card, warnings=("Not for publication.", card.answer))):
        assert lies_well(shown)


def test_that_check_itself(tmp_path, monkeypatch):
    """A margin that is wider than the card's own, and texts that nothing makes smaller or cuts."""
    card = card_of(sample_run(tmp_path).path)
    with monkeypatch.context() as changed:
        changed.setitem(globals(), "MARGIN_PX", MARGIN_PX + 2)
        found = boxes(card)
        assert not is_whole(found) and not overlaps(found)
    monkeypatch.setattr("specbench.reports.charts.card._height", lambda written, lines: 0.0)
    assert not is_whole(boxes(replace(card, about="word " * 400)))
    assert overlaps(boxes(replace(card, heading="word " * 400)))


@pytest.mark.parametrize("name", ["W" * 300, ",".join(["some-option=value"] * 16), "$x_1$ " * 40])
def test_nothing_touches_the_margins_at_any_length_of_a_label(tmp_path, name):
    """Names of two arms, with the longest words above the outermost values; warnings and facts at length."""
    run = RunDirectory.create(tmp_path, "names", begun("no-spec", f"{name},1", f"{name},2"))
    for repeat in range(2):
        run.append("no-spec", repeat, **chain_block([0] * 12, k=0, round_ms=8.0 + 0.1 * repeat))
        run.append(f"{name},1", repeat, **chain_block([4, 0, 2, 1], round_ms=10.0 + repeat))
        run.append(f"{name},2", repeat, **chain_block([4, 0, 2, 1], round_ms=12.0 + repeat))
    run.finish(results(run.frames()))
    card = card_of(run.path)
    for warnings, conditions in (((), ()), ((name,), (name,)), (("a doubt",) * 80, ("a fact",) * 80)):
        shown = replace(card, warnings=warnings, conditions=conditions, about=f"{card.about} {name}")
        assert lies_well(shown)
    wide = replace(card.facts[0], value="inconclusive: interval wider than a factor of 3", note=card.answer)
    shown = replace(card, facts=(wide, *card.facts[1:]))
    assert lies_well(shown)


def test_words_at_the_values_stay_clear_of_the_names_of_the_rows(tmp_path):
    run = experiment(tmp_path, change=-0.2)
    judge_and_write(run)
    (axes,) = card_figure(card_of(run.path)).axes
    inside = axes.get_window_extent()
    assert axes.texts
    for text in axes.texts:
        box = text.get_window_extent()
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1, text.get_text()


def colours(card) -> dict[str, str]:
    return {" ".join(text.get_text().split()): text.get_color() for text in card_figure(card).texts}


def test_only_doubts_are_red(tmp_path):
    run = sample_run(tmp_path)
    run.finish(results(run.frames()))
    file = run.path / "run.json"
    raw = json.loads(file.read_text())
    facts, doubts = ["synthetic acceptance (rates=0.7)", "graph=none (cpu)"], ["DISTURBED: load 4.8", "NOT LOSSLESS: x"]
    for arm in raw["results"]["arms"]:
        arm["marks"] = [*facts, *doubts] if arm["label"] != "no-spec" else ["warm-up not stable after 5 s"]
    raw["results_sha256"] = None
    file.write_text(json.dumps(raw))
    card = card_of(run.path)
    red = [text for text, colour in colours(card).items() if colour == palette()["bad"]]
    label = card.conditions[0].partition(": ")[0]
    assert red == [f"{label}: {'; '.join(doubts)}. no-spec: warm-up not stable after 5 s."]
    assert colours(card)[f"{label}: {'; '.join(facts)}."] == palette()["text"]
    assert palette()["bad"] not in colours(card_of(sample_run(tmp_path / "plain").path)).values()


def test_an_experiment_under_forced_acceptance_has_nothing_red_and_a_mismatch_is(tmp_path):
    run = experiment(tmp_path, change=0.03)
    record = judge_and_write(run)
    arms = {k: replace(a, notes=("synthetic acceptance (0.7)", "synthetic weights")) for k, a in record.arms.items()}
    record = replace(record, arms=arms)
    write_document(run.path / "ab.json", record)
    card = card_of(run.path)
    assert len(card.conditions) == 2 and not card.warnings and palette()["bad"] not in colours(card).values()
    write_document(run.path / "ab.json", replace(record, mismatches=("model: a and b",)))
    (warning,) = card_of(run.path).warnings
    assert colours(card_of(run.path))[warning] == palette()["bad"] and "NOT THE SAME" in warning


def test_a_command_too_long_says_that_it_was_cut(tmp_path):
    card = replace(card_of(long_run(tmp_path)), command="specbench run " + f"-s {LONG} " * 40)
    assert is_whole(boxes(card)) and any(text.get_text().endswith(" ...") for text in card_figure(card).texts)


def test_show_writes_it(cli, tmp_path):
    file = tmp_path / "new" / "card.png"
    result = cli("show", sample_run(tmp_path).path, "--card", file)
    assert result.exit_code == 0 and f"wrote {file}" in result.stderr and "outputs equal" in result.stdout
    assert imread(file).shape[:2] == (HEIGHT_PX, WIDTH_PX)


def test_a_full_disk_leaves_no_card_and_not_half_of_one(cli, tmp_path, monkeypatch):
    def half(self, file, **asked):
        file.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "cards"
    run, file = sample_run(tmp_path).path, folder / "card.png"
    monkeypatch.setattr(Figure, "savefig", half)
    for before in ([], [file]):
        for path in before:
            path.write_text("the earlier one")
        result = cli("show", run, "--card", file)
        assert str(result.exception) == f"card: cannot write to {file}: No space left on device"
        assert list(folder.iterdir()) == before and all(path.read_text() == "the earlier one" for path in before)


def test_what_cannot_be_a_card_is_refused(cli, tmp_path):
    refused = cli("show", sample_run(tmp_path).path, "--card", "card.jpg")
    assert str(refused.exception) == "card: 'card.jpg' is not allowed; allowed: a file that ends in .png"
    empty = RunDirectory.create(tmp_path, "empty", begun("no-spec"))
    assert "No repeat was completed" in card_of(empty.path).answer
