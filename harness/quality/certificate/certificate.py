"""`certificate.json` in a run directory: rewritten whole and atomically after every arm, so that a certificate goes on.

What the arms said stands beside it, one file an arm and temperature, for whoever wants to judge again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from specbench.harness.quality.certificate.acceptance import Round
from specbench.harness.quality.certificate.certify import Certificate, Generated
from specbench.harness.quality.certificate.distribution import check_num_seeds
from specbench.harness.quality.certificate.tolerance import Tolerance
from specbench.harness.spec.sampling import SamplingParams
from specbench.harness.store.codec import from_document
from specbench.harness.store.files import to_object, write_json
from specbench.workloads.json_values import Json, JsonObject

SCHEMA = "specbench.certificate/2"
FILE = "certificate.json"
_OUTPUTS = "certificate-outputs"


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifySettings:
    """`num_seeds`: of the distribution test at each temperature above 0; 0: none."""

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


class StoredSettings(TypedDict):
    temperatures: list[float]
    num_seeds: int


class StoredTolerance(TypedDict):
    logits: float
    undecided: float
    num_positions: int
    is_exact: bool
    method: str


class StoredCertificate(TypedDict):
    """`tolerances`: by temperature; `certificates`: a row an arm and temperature."""

    schema: str
    status: str
    settings: StoredSettings
    inputs: dict[str, Json]
    tolerances: dict[str, StoredTolerance]
    certificates: list[dict[str, Json]]


class CertificateFile:
    """The file and the outputs beside it; the process that certifies is the only writer."""

    def __init__(self, directory: Path, settings: CertifySettings, inputs: JsonObject):
        """Goes on with the certificate of `directory` where there is one.

        `inputs`: what must not change meanwhile. ValueError where it has.
        """
        self._directory = directory
        stored = read(directory)
        self.data: StoredCertificate = stored or {
            "schema": SCHEMA,
            "status": "running",
            "settings": from_document(StoredSettings, to_object(settings), FILE),
            "inputs": to_object(inputs),
            "tolerances": {},
            "certificates": [],
        }
        for name, now in to_object(inputs).items():
            before = self.data["inputs"].get(name)
            if before != now:
                raise ValueError(f"run: {directory} has a certificate for {name} {before!r}, it is now {now!r}")

    def has(self, arm: str, temperature: float) -> bool:
        """Whether the arm was judged; one that failed to run is tried again."""
        rows = self.data["certificates"]
        return any(r["arm"] == arm and r["temperature"] == temperature and not r.get("error") for r in rows)

    def add(self, certificate: Certificate) -> None:
        row = {**to_object(certificate), "ok": certificate.ok, "error": ""}
        if (test := certificate.distribution) is not None:
            row["distribution"] = {**to_object(test), "p_value": test.p_value, "is_telling": test.is_telling}
        if (excess := certificate.excess) is not None:
            row["excess"] = {**to_object(excess), "p_value": excess.p_value}
        self._put(row)

    def add_failure(self, arm: str, temperature: float, error: str) -> None:
        """An arm that did not run has no certificate, which is a failed one."""
        row: dict[str, Json] = {
            "arm": arm,
            "temperature": temperature,
            "ok": False,
            "error": error,
            "problems": [f"failed: {error}"],
        }
        self._put(row)

    def note_tolerance(self, temperature: float, tolerance: Tolerance) -> None:
        self.data["tolerances"][str(temperature)] = from_document(StoredTolerance, to_object(tolerance), FILE)
        self._write()

    def tolerance(self, temperature: float) -> Tolerance | None:
        """What was noted: a certificate that goes on judges by the same."""
        found = self.data["tolerances"].get(str(temperature))
        return Tolerance(**found) if found else None

    def finish(self) -> None:
        self.data["status"] = "complete"
        self._write()

    def outputs(self, arm: str, temperature: float) -> Generated | None:
        """What the arm said, if it is stored."""
        path = self._path(arm, temperature)
        if not path.is_file():
            return None
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Generated(
            {int(number): tuple(ids) for number, ids in raw["outputs"].items()},
            {int(number): [Round(*r) for r in rounds] for number, rounds in raw["rounds"].items()},
        )

    def keep_outputs(self, arm: str, temperature: float, generated: Generated) -> None:
        path = self._path(arm, temperature)
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"arm": arm, "temperature": temperature, **to_object(generated)})

    def _path(self, arm: str, temperature: float) -> Path:
        name = hashlib.sha256(json.dumps([arm, temperature]).encode()).hexdigest()[:16]
        return self._directory / _OUTPUTS / f"{name}.json"

    def _put(self, row: dict[str, Json]) -> None:
        kept = [
            r for r in self.data["certificates"] if (r["arm"], r["temperature"]) != (row["arm"], row["temperature"])
        ]
        self.data["certificates"] = [*kept, row]
        self._write()

    def _write(self) -> None:
        write_json(self._directory / FILE, self.data)


def read(directory: Path) -> StoredCertificate | None:
    """The certificate of a run directory, if there is one. ValueError for one of another version."""
    path = directory / FILE
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {data.get('schema')!r}, this version reads {SCHEMA!r}")
    return data


def settings_of(data: StoredCertificate) -> CertifySettings:
    """The settings that a stored certificate was made with."""
    raw = data["settings"]
    return CertifySettings(temperatures=tuple(raw["temperatures"]), num_seeds=raw["num_seeds"])
