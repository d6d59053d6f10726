"""Charts described once, over data frames: drawn by Vega-Lite on pages and by matplotlib as PNG and PDF.

Imported by: reports.
"""
