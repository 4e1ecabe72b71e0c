"""Random requests against every operation of the API document."""
