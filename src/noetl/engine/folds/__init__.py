"""How each kind of event changes the state; one module per subject, one table of rules each."""
