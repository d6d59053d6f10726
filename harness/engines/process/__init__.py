"""Foreign processes: started under a supervisor that ends all of them for certain, and servers among them.

Imported by: harness/engines/child, harness/engines/llama_cpp, harness/engines/native, harness/engines/served,
harness/engines/sglang, harness/engines/vllm.
"""
