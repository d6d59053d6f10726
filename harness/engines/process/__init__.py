"""External processes, including servers: started under a supervisor that reliably ends all of them.

Imported by: harness/engines/child, harness/engines/llama_cpp, harness/engines/native, harness/engines/served,
harness/engines/sglang, harness/engines/vllm.
"""
