"""Random programs that try to break what onehop promises."""
