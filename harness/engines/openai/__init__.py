"""The engine `openai`: any server that speaks OpenAI's protocol, and the client that measures through it.

Imported by: harness/engines/llama_cpp, harness/engines/process, harness/engines/served, harness/engines/sglang,
harness/engines/vllm, harness/experiments/imports.
"""
