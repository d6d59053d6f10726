"""The engine `llama.cpp`: arms as command lines of llama-server, which is started here and asked over HTTP.

Imported by: nothing of ours.
"""
