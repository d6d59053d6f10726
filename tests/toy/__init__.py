"""A toy target, drafters that follow a script, and what tests need to compare engines. Shared by the engine's tests."""
