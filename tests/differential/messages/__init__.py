"""Programs of a layer with a message of its own, written as text, run with and without the patch."""
