"""The devices, links and paths of machines and clusters."""
