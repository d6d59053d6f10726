"""The options of `specbench run` under headings: more than fifty in one list are not read."""

from __future__ import annotations

import inspect
from collections.abc import Callable

GROUPS = {
    "Arms": "strategy recipe base factor batch_sizes head",
    "Model": "model load_format num_layers dtype device",
    "Prompts": "dataset_name dataset_path hf_split hf_subset hf_column num_prompts output_len random_input_len "
    "random_output_len random_range_ratio max_model_len",
    "Load": "max_concurrency request_rate burstiness",
    "Sampling": "temperature top_k top_p ignore_eos stop_token_id seed",
    "Measurement": "num_repeats warmup_max_s accuracy accuracy_num_fewshot accuracy_include_path certify_graphs ranges",
    "Switches of all arms": "attention attention_drafter graph graph_target graph_first graph_later graph_mixed sync "
    "drafter state_update acceptance page_size num_pages max_num_batched_tokens",
    "Output": "output_dir label resume as_json quiet",
}
_GROUP_OF = {name: title for title, names in GROUPS.items() for name in names.split()}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Puts each option of a command under its heading; commands that take over its options take these too."""
    parameters = inspect.signature(command, eval_str=True).parameters
    for name, parameter in parameters.items():
        for option in getattr(parameter.annotation, "__metadata__", ()):
            option.rich_help_panel = _GROUP_OF[name]
    command.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return command
