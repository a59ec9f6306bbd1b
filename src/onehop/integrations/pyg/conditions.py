"""Old names, until all callers use the new ones."""

from onehop.integrations.pyg.layer import (
    has_hooks as has_hooks,
    layer_reason as layer_reason,
    reduction_of as reduction_of,
)
from onehop.integrations.pyg.leave import (
    FITS_CACHE as FITS_CACHE,
    FLOATS as FLOATS,
    LEFT_TO_PYG as LEFT_TO_PYG,
    TOO_SMALL as TOO_SMALL,
)
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS as REDUCTIONS
