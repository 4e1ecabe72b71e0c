"""The control plane: accepts work, appends events, folds, decides, hands out commands."""
