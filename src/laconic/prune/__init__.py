"""Models made smaller before anything is quantized: what the data does not use, what the score does not need."""
