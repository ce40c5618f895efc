"""What a model costs and how well it holds: intervals, fidelity, speed, size."""
