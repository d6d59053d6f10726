"""vLLM as an engine: arms mapped to its configuration, driven in process by a child that its own Python runs.

Imported by: nothing of ours.
"""
