"""SGLang in the Python that has it: arms as its ServerArgs, and a child that drives its Engine.

Imported by: nothing of ours.
"""
