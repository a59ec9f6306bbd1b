"""What carries the operators into models written for other libraries."""
