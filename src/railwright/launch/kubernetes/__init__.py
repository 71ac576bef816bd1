"""Kubernetes jobs whose pods serve as hosts: request, manifests, life cycle, and the program of a pod."""
