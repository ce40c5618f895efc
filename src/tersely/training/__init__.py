"""Training: fine-tuning, and what all trainings share. Needs torch."""
