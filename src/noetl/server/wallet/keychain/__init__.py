"""The keychain: what entries of playbooks stand for, kept sealed, and renewed in time."""
