"""Printed text."""
