"""The file formats from which graphs are read, one module each; nothing is ever unpickled."""
