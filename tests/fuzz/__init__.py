"""Hostile input for everything that reads what others wrote: one table of targets, for hypothesis and for atheris."""
