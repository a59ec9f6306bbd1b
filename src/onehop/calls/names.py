"""The names of operators, in messages and in torch's registry."""

import re


def name_of(kind: type) -> str:
    """The name of the operator that a kind of call belongs to, such as "edge_softmax"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
