"""`specbench accuracy`: task accuracy of strategies on the same items, by lm-eval."""

from __future__ import annotations

from specbench.harness.accuracy.extra import require_lm_eval
from specbench.harness.spec.commands import AccuracyOptions

from .derived import takes_options, typed_command
from .gen_kwargs import check_gen_kwargs


@takes_options
def accuracy(options: AccuracyOptions) -> None:
    """Score every arm on the same items with lm-eval, and compare the arms item by item.

    Outputs go to runs/<UTC>-<label>-<id>/ as they come; Ctrl-C keeps them, --resume goes on.

    Exit code: 0 all arms scored, 1 an arm failed, 2 bad input, 130 interrupted.

    Examples:

      specbench accuracy -s no-spec -s ngram:k=4 --tasks gsm8k --num_fewshot 5 --limit 500

      specbench accuracy -s no-spec -s eagle:k=4 --tasks gsm8k:200,my_task:50 --include-path my-tasks/
    """
    require_lm_eval()
    from specbench.harness.accuracy.eval_config import EvalConfig, check_real_text, parse_tasks
    from specbench.harness.experiments.accuracy import new_evaluation, resume_evaluation
    from specbench.harness.experiments.session import Output
    from specbench.harness.registry import default_arms
    from specbench.harness.spec.arm import parse_arm
    from specbench.harness.spec.run_config import RunConfig

    from .accuracy_output import print_evaluation
    from .ending import end
    from .progress import RunProgress

    if options.resume is not None:
        options.check_alone("an evaluation")
        with RunProgress(options.quiet) as progress:
            directory = resume_evaluation(options.resume, typed_command(), progress)
        end(print_evaluation(directory))
        return
    check_gen_kwargs(options.gen_kwargs)
    asked = EvalConfig(
        tasks=parse_tasks(options.tasks, options.limit),
        num_fewshot=options.num_fewshot,
        include_path=options.include_path,
        apply_chat_template=options.apply_chat_template,
        gen_kwargs=options.gen_kwargs,
    )
    arms = [parse_arm(text) for text in options.strategy or default_arms(has_head=False)]
    items = {"dataset_name": "gsm8k", "dataset_path": options.gsm8k_path, "num_prompts": options.limit or 1319}
    config = RunConfig.of_arms(options, arms, **items)
    check_real_text(config.arms)
    output = Output(options.output_dir, options.label, tuple(typed_command()))
    with RunProgress(options.quiet) as progress:
        directory = new_evaluation(config, asked, (options.gsm8k_path, options.fewshot_path), output, progress)
    end(print_evaluation(directory))
