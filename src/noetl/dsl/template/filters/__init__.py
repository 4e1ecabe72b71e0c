"""The filters of templates, one module per kind of value they work on."""
