"""Old names, until all callers use the new ones."""

from onehop.integrations.pyg.layer import has_hooks as has_hooks
from onehop.integrations.pyg.layer import layer_reason as layer_reason
from onehop.integrations.pyg.layer import reduction_of as reduction_of
from onehop.integrations.pyg.leave import FITS_CACHE as FITS_CACHE
from onehop.integrations.pyg.leave import FLOATS as FLOATS
from onehop.integrations.pyg.leave import LEFT_TO_PYG as LEFT_TO_PYG
from onehop.integrations.pyg.leave import TOO_SMALL as TOO_SMALL
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS as REDUCTIONS
