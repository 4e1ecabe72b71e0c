"""Forms of earlier releases and of more than one spelling, brought to the one normal form."""
