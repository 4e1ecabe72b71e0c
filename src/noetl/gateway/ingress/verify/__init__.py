"""How deliveries prove where they come from: one file per scheme, one verdict for all."""
