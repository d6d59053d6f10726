"""lm-eval's own command line with `--model specbench` known to it, and GSM8K without the hub.

lm-eval (0.4.13) has no plug-in point for models: it finds them in a table of its own only, so the name is added before
its command line starts, and everything after that is lm-eval's. Both of its spellings and all of its options work:

    specbench-lm-eval run --model specbench --model_args strategy=naive-eagle,k=4,head=DIR --tasks gsm8k --limit 100
    specbench-lm-eval --model specbench --model_args pretrained=DIR,strategy=ngram --tasks TASK --include_path FOLDER
    python -m specbench.harness.quality.lm_evaluation.cli run --help

In Python, one line before `simple_evaluate(model="specbench", model_args=...)`:

    from specbench.harness.quality.lm_evaluation.cli import register; register()

Keys of `model_args`: see `SpecbenchLM`. The rows of the task `gsm8k` come from where `specbench fetch` has them, unless
`--include_path` is given: lm-eval takes one folder only, and then its own source is used.
"""

from __future__ import annotations

import os
import sys

from specbench.harness.exit_codes import ExitCode
from specbench.harness.quality.lm_evaluation.tasks import require_lm_eval

MODEL_NAME = "specbench"
_TARGET = "specbench.harness.quality.lm_evaluation.by_arguments:SpecbenchLM"


def register() -> None:
    """Adds `specbench` to lm-eval's models, lazily. Calling it again changes nothing."""
    import lm_eval.models  # noqa: F401 - fills the table, which a first entry of ours would keep empty
    from lm_eval.api.registry import model_registry

    if MODEL_NAME not in model_registry:
        model_registry.register(MODEL_NAME, target=_TARGET)


def main() -> None:
    """`specbench-lm-eval run --model specbench --model_args strategy=... --tasks gsm8k ...`: any option of lm_eval.

    Few-shot rows of GSM8K: SPECBENCH_GSM8K_TRAIN names a file, else the resolver's train split.
    """
    try:
        require_lm_eval()
        from lm_eval.__main__ import cli_evaluate

        register()
        if not _asks_for_gsm8k(sys.argv) or any(word.partition("=")[0] == "--include_path" for word in sys.argv):
            cli_evaluate()
            return
        from specbench.harness.quality.lm_evaluation.gsm8k import find_rows, task_folder

        rows = find_rows(fewshot=os.environ.get("SPECBENCH_GSM8K_TRAIN"))
        for note in rows.notes:
            print(f"specbench: {note}", file=sys.stderr)
        with task_folder(rows) as folder:
            sys.argv += ["--include_path", str(folder)]
            cli_evaluate()
    except ValueError as error:
        print(f"specbench: error: {error}", file=sys.stderr)
        sys.exit(ExitCode.BAD_INPUT)


def _asks_for_gsm8k(argv: list[str]) -> bool:
    return any("gsm8k" in word.partition("=")[2].split(",") or "gsm8k" in word.split(",") for word in argv)


if __name__ == "__main__":
    main()
