"""Every option: what it is called, how it is read, which steps it acts on; flags; YAML files."""
