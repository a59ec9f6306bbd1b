"""Any message: layers whose messages treat each edge on its own, run in blocks of whole destination rows."""
