"""Old names, until all callers use the new ones."""

from onehop.integrations.pyg.layer import is_left_out as is_left_out, is_plain as is_plain
