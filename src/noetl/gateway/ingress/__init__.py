"""Push ingress: deliveries of strangers, each verified before anything of it is believed."""
