"""Text to nodes: the lexer and the parsers of expressions and statements."""
