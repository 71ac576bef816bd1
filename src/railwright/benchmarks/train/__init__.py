"""A training iteration: compute and the all-reduce of its gradients."""
