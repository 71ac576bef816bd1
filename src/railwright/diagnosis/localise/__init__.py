"""Locates slow hosts, links and routes: the fabric, a schedule of few rounds, the inference, and a simulator."""
