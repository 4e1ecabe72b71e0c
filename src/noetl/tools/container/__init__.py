"""Containers: jobs that run beside the workers, on Kubernetes, in podman, or as plain processes."""
