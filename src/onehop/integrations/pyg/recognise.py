"""Old names, until all callers use the new ones."""

from onehop.integrations.pyg.known import *
from onehop.integrations.pyg.known import edge_updates as edge_updates
from onehop.integrations.pyg.rules import known_layers as known_layers

MAYBE_WEIGHTED = OVER_MATRIX = "source * weight"

from onehop.integrations.pyg.rules import rules as message_forms
