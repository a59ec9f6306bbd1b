"""Any message of a layer that treats each edge on its own, compiled or in blocks of whole rows."""
