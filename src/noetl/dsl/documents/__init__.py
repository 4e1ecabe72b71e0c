"""Models of the kinds of documents other than Playbook and Subscription."""
