"""lm-eval tasks on local files: `counting` (generated answers) and `choosing` (log-likelihoods of choices); and a
model with a chat template."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
_COUNTING = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {files}
output_type: generate_until
test_split: test
{fewshot}
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
generation_kwargs:
  until: ["Question:"]
  do_sample: false
  max_gen_toks: 6
metadata:
  version: 1.0
"""
_CHOOSING = """\
task: choosing
dataset_path: json
dataset_kwargs:
  data_files: {files}
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_choice: ["yes", "no", "{{{{answer}}}}"]
doc_to_target: 2
metric_list:
  - metric: acc
num_fewshot: 0
"""


def write_tasks(folder: Path, *, num_items: int = 6, name: str = "counting", examples: str = "train") -> Path:
    """A folder for lm-eval's include path; `examples`: the split that few-shot rows of `counting` come from."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for split, count in (("test", num_items), ("train", 4)):
        path = folder / f"{split}.jsonl"
        rows = [{"question": f"{split} {i}+1?", "answer": f" {i + 1}"} for i in range(count)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files[split] = str(path)
    fewshot = f"fewshot_split: {examples}" if examples else ""
    (folder / f"{name}.yaml").write_text(_COUNTING.format(name=name, files=json.dumps(files), fewshot=fewshot))
    (folder / "choosing.yaml").write_text(_CHOOSING.format(files=json.dumps(files)))
    return folder


def with_chat_template(model: Path, folder: Path) -> Path:
    """A copy of a model directory whose tokenizer has CHAT_TEMPLATE."""
    copy = folder / "instruct"
    shutil.copytree(model, copy)
    config = copy / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": CHAT_TEMPLATE}))
    return copy
