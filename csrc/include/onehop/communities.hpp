// An order of a graph's nodes in which the nodes of a community, and of communities inside it, are neighbours.
#pragma once

#include <cstdint>

#include "onehop/csr.hpp"

namespace onehop {

// Writes to order[0, rows) the nodes of a graph with as many rows as columns, whose edges are treated as undirected.
//
// Nodes join the neighbouring community that raises the modularity most, one after the other, until few move;
// then each community becomes a node of a smaller graph, and so on (V. Blondel, J.-L. Guillaume, R. Lambiotte,
// E. Lefebvre, "Fast unfolding of communities in large networks", J. Stat. Mech. P10008, 2008). The order is that
// of the tree of communities, as in J. Arai et al., "Rabbit Order", IPDPS 2016, and of the numbers within the
// smallest. One thread and no chance: the same graph gives the same order.
void community_order(const Csr& csr, int32_t* order);

}  // namespace onehop
