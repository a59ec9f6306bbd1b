"""The file formats that graphs are read from, one module each. Nothing is ever unpickled."""
