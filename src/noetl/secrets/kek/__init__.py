"""Keys that wrap the keys of records: on this machine, in Vault, in Google Cloud KMS."""
