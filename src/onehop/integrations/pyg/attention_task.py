"""Old names, until all callers use the new ones."""

from onehop.integrations.pyg.call import Plan

AttentionTask = Plan
