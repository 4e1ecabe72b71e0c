"""Object stores as tasks: `s3` and `gcs`, and whoever else reads or writes objects by address."""
