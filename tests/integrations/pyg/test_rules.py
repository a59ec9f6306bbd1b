"""The table of rules: what it names is checked when a rule is entered."""

import pytest

from onehop.errors import ConfigurationError
from onehop.integrations.pyg.admit import GIVEN, Source
from onehop.integrations.pyg.rules import rules
from onehop.integrations.pyg.rules.table import TABLE, rule


@pytest.mark.parametrize(
    ("operands", "sentence"),
    [
        ({"x": Source(), "weight": GIVEN}, "SAGEConv does not take the operand 'weight' of propagate."),
        ({}, "SAGEConv takes, and its rule does not name, the operand 'x' of propagate."),
    ],
)
def test_operands_that_a_layer_does_not_take_are_an_error_at_import(operands, sentence):
    known = dict(TABLE)
    with pytest.raises(ConfigurationError) as error:
        rule("SAGEConv", **operands)(lambda call, *given: None)
    assert str(error.value) == sentence
    assert known == TABLE


def test_every_rule_reads_the_width_of_an_operand_that_it_has():
    assert len(rules()) == len(TABLE) > 30
    for name, each in TABLE.items():
        assert each.first in each.operands, name
