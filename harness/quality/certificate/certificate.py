"""`certificate.json` in a run directory: rewritten entirely and atomically after every arm, so that it can be resumed.

The arms' outputs are next to it, one file per arm and temperature, so that they can be judged again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specbench.harness.quality.certificate.acceptance import Round
from specbench.harness.quality.certificate.answers import Answers
from specbench.harness.quality.certificate.certify import Certificate, Generated
from specbench.harness.quality.certificate.distribution import check_num_seeds
from specbench.harness.quality.certificate.tolerance import Tolerance
from specbench.harness.spec.sampling import SamplingParams
from specbench.harness.store.codec import read_document, read_object, write_document
from specbench.harness.store.files import to_object, write_json

SCHEMA = "specbench.certificate/2"
FILE = "certificate.json"
_OUTPUTS = "certificate-outputs"


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifySettings:
    """`num_seeds`: for the distribution test at each temperature above 0; 0: no test."""

    temperatures: tuple[float, ...]
    num_seeds: int

    def __post_init__(self) -> None:
        if not self.temperatures or len(set(self.temperatures)) < len(self.temperatures):
            raise ValueError(
                f"temperature: {list(self.temperatures)} is not allowed; give different values, at least one"
            )
        for temperature in self.temperatures:
            SamplingParams(temperature=temperature)
        check_num_seeds(self.num_seeds)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredCertificate:
    """`inputs`: what must be unchanged when it is resumed. `tolerances`: by temperature; `certificates`: a row per arm
    and temperature."""

    schema: str = SCHEMA
    status: str = "running"
    settings: CertifySettings
    inputs: dict[str, str | None]
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    certificates: tuple[dict[str, Any], ...] = ()


class CertificateFile:
    """The file and the outputs next to it; the process that certifies is the only writer."""

    def __init__(self, directory: Path, settings: CertifySettings, inputs: Mapping[str, str | None]):
        """Resumes the certificate of `directory` if there is one. ValueError if its inputs have changed."""
        self.directory = directory
        self.data = read(directory) or StoredCertificate(settings=settings, inputs=dict(inputs))
        for name, now in inputs.items():
            before = self.data.inputs.get(name)
            if before != now:
                raise ValueError(f"run: {directory} has a certificate for {name} {before!r}, it is now {now!r}")

    def has(self, arm: str, temperature: float) -> bool:
        """Whether the arm was judged; an arm that failed to run is tried again."""
        rows = self.data.certificates
        return any(r["arm"] == arm and r["temperature"] == temperature and not r.get("error") for r in rows)

    def add(self, certificate: Certificate) -> None:
        row: dict[str, Any] = {**to_object(certificate), "ok": certificate.ok, "error": ""}
        if not certificate.judged_by:  # our own engine's: all is done
            del row["judged_by"], row["not_done"]
        if (test := certificate.distribution) is not None:
            row["distribution"] = {**to_object(test), "p_value": test.p_value, "is_telling": test.is_telling}
        if (excess := certificate.excess) is not None:
            row["excess"] = {**to_object(excess), "p_value": excess.p_value}
        self._add(row)

    def add_failure(self, arm: str, temperature: float, error: str) -> None:
        """Records an arm that did not run, which counts as a failed certificate."""
        problems = [f"failed: {error}"]
        self._add({"arm": arm, "temperature": temperature, "ok": False, "error": error, "problems": problems})

    def tolerance(self, temperature: float) -> Tolerance | None:
        """The stored tolerance: a resumed certificate judges by the same one."""
        return self.data.tolerances.get(str(temperature))

    def note_tolerance(self, temperature: float, tolerance: Tolerance) -> None:
        self._write(replace(self.data, tolerances={**self.data.tolerances, str(temperature): tolerance}))

    def finish(self) -> None:
        self._write(replace(self.data, status="complete"))

    def outputs(self, arm: str, temperature: float) -> Generated | None:
        """The arm's outputs, if they are stored."""
        path = self._path(arm, temperature)
        if not path.is_file():
            return None
        raw: dict[str, Any] = read_object(path, mend="remove it and certify again")
        return Generated(
            {int(number): tuple(ids) for number, ids in raw["outputs"].items()},
            {int(number): [Round(*r) for r in rounds] for number, rounds in raw["rounds"].items()},
        )

    def keep_outputs(self, arm: str, temperature: float, generated: Generated | Answers) -> None:
        path = self._path(arm, temperature)
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"arm": arm, "temperature": temperature, **to_object(generated)})

    def _path(self, arm: str, temperature: float) -> Path:
        name = hashlib.sha256(json.dumps([arm, temperature]).encode()).hexdigest()[:16]
        return self.directory / _OUTPUTS / f"{name}.json"

    def _add(self, row: dict[str, Any]) -> None:
        place = row["arm"], row["temperature"]
        others = [r for r in self.data.certificates if (r["arm"], r["temperature"]) != place]
        self._write(replace(self.data, certificates=(*others, row)))

    def _write(self, data: StoredCertificate) -> None:
        self.data = data
        write_document(self.directory / FILE, data)


def read(directory: Path) -> StoredCertificate | None:
    """The certificate of a run directory, if there is one. ValueError for one of another version."""
    path = directory / FILE
    return read_document(path, StoredCertificate, SCHEMA) if path.is_file() else None
