"""A compress run: rows and a model in, candidates made, scored and compared, one folder out."""
