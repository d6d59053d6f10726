"""Charts over data frames, described once, drawn by Vega-Lite on pages and by matplotlib as PNG and PDF.

Imported by: reports.
"""
