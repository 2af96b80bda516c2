"""How a table of settings is declared, read and shown."""
