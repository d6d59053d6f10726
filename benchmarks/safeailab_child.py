"""SafeAILab's EAGLE on given prompts: run by safeailab_rounds.py in a Python of its own, which has no specbench.

    python safeailab_child.py SOURCE JOB ANSWER

Nothing of SOURCE is changed. What is done around it, all in this file: the weights get an index file beside links to
them, because its loader reads embeddings through one; and the function that counts accepted drafts is wrapped in one
that notes what it returns.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch


def with_index(model: Path, folder: Path) -> Path:
    """Links to the files of the model, and an index of its only weights file."""
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    names = {"model.embed_tokens.weight": "model.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return folder


def main(source: str, job_file: str, answer: str) -> None:
    sys.path.insert(0, source)
    from eagle.model import ea_model

    job = json.loads(Path(job_file).read_text())
    accepted: list[int] = []
    count = ea_model.evaluate_posterior

    def noted(*args):
        found = count(*args)
        accepted.append(int(found[1]))
        return found

    ea_model.evaluate_posterior = noted
    rounds: dict[str, dict[str, dict[str, list[int]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(with_index(Path(job["model"]), Path(folder)))
        for label, tree in job["arms"].items():
            model = ea_model.EaModel.from_pretrained(
                base_model_path=path,
                ea_model_path=job["head"],
                torch_dtype=getattr(torch, job["dtype"]),
                trust_remote_code=False,
                **tree,
            )
            rounds[label] = {}
            for prompt, ids in job["prompts"].items():
                accepted.clear()
                out = model.eagenerate(torch.tensor([ids]), max_new_tokens=job["output_len"])
                rounds[label][prompt] = cut(out[0, len(ids) :].tolist(), list(accepted), job)
    versions = {name: version(name) for name in ("torch", "transformers")}
    Path(answer).write_text(json.dumps({"rounds": rounds, "versions": versions}))


def cut(tokens: list[int], accepted: list[int], job: dict) -> dict[str, list[int]]:
    """Up to the stop or the limit: it goes on to the end of the round, or one token further."""
    ends = [place + 1 for place, token in enumerate(tokens) if token in job["stop_token_ids"]]
    kept = tokens[: min([*ends, job["output_len"]])]
    num_rounds = made = 0
    while 1 + made < len(kept):
        made += accepted[num_rounds] + 1
        num_rounds += 1
    return {"tokens": kept, "accepted": accepted[:num_rounds]}


if __name__ == "__main__":
    main(*sys.argv[1:])
