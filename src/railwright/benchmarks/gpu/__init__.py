"""Copies, loads and files of GPU memory."""
