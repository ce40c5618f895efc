"""Dynamic INT8 for those who stay in torch: a folder that `laconic.load_model` reads."""
