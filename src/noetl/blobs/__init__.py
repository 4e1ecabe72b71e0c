"""Large bytes: results, loop items and artifacts, named by references."""
