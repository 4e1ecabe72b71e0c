"""The catalog: documents are checked, kept under their path, compared, tested and put away."""
