"""Child interpreters: `pool` keeps them warm, `child` is what runs in them."""
