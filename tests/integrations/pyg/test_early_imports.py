"""Functions of PyG that a module imported by name before the patch."""

import torch
import torch_geometric.utils as utils
from torch_geometric.utils import coalesce as merged, negative_sampling, scatter, softmax

import onehop
from onehop.integrations.rows import replaced


def test_they_are_replaced_while_the_patch_is_in_place():
    theirs = (merged, negative_sampling, scatter, softmax)
    with onehop.patch():
        ours = (merged, negative_sampling, scatter, softmax)
        assert [replaced(each) for each in ours] == list(theirs)
        assert ours == (utils.coalesce, utils.negative_sampling, utils.scatter, utils.softmax)
    assert (merged, negative_sampling, scatter, softmax) == theirs


def test_only_layers_leaves_them():
    edge_index = torch.randint(0, 9, (2, 40))
    with onehop.patch(only="GCNConv"):
        assert torch.equal(merged(edge_index), edge_index.unique(dim=1))
