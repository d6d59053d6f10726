"""The table of a losslessness certificate explains the columns that it has, and no others."""

from __future__ import annotations

import json

from site_samples import add_certificate

from specbench.reports.experiments.certificate import certificate_table


def notes_of(folder, *, ok: bool):
    """The columns, and the notes by the column that they explain."""
    folder.mkdir()
    add_certificate(folder, ok)
    table = certificate_table(json.loads((folder / "certificate.json").read_text()))
    return table.headers, {note.split(": ")[0]: note for note in table.notes}


def test_columns_without_figures_are_neither_shown_nor_explained(tmp_path):
    headers, notes = notes_of(tmp_path / "passed", ok=True)
    assert "worst gap" not in headers and {"exact", "worst regret"} <= set(headers)
    assert list(notes) == ["exact", "worst regret", "tolerance at temperature 0.0"]
    headers, notes = notes_of(tmp_path / "failed", ok=False)
    assert "worst gap" in headers and notes["worst gap"].startswith("worst gap: between the two tokens of a first")
    assert not {"regret sum", "acceptance", "distribution"} & {*headers, *notes}
