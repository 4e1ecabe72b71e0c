"""Values that lie apart: results, manifests, deposits and variables."""
