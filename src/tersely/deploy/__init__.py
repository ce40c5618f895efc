"""From a model to what runs: export, probe, card, the forms that others load, and opening either on an engine."""
