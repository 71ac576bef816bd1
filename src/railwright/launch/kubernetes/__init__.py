"""Pods of a Kubernetes job as hosts: what is asked for, how it is made, followed and removed, and what runs in it."""
