"""The scripts of PyG's folder ``examples`` that are run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A script, by its path within ``examples``, and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()


NAMES = """
agnn.py ar_link_pred.py argva_node_clustering.py arma.py autoencoder.py cluster_gcn_reddit.py
colors_topk_pool.py cora.py dgcnn_classification.py dir_gnn.py dna.py film.py gat.py gcn.py gcn2_cora.py
gcn2_ppi.py geniepath.py glnn.py gpse.py graph_saint.py graph_gps.py graph_unet.py
infomax_transductive.py lightgcn.py link_pred.py linkx.py mem_pool.py mixhop.py mnist_graclus.py
mnist_voxel_grid.py mutag_gin.py node2vec.py ogbn_proteins_deepgcn.py pmlp.py pna.py
pointnet2_classification.py ppi.py proteins_diff_pool.py proteins_dmon_pool.py proteins_gmt.py
proteins_mincut_pool.py proteins_topk_pool.py reddit.py rect.py rev_gnn.py rgat.py rgcn.py
rgcn_link_pred.py sgc.py shadow.py signed_gcn.py super_gat.py tagcn.py tgn.py unimp_arxiv.py upfd.py
compile/gcn.py compile/gin.py
contrib/pgm_explainer_node_classification.py
explain/gnn_explainer.py explain/gnn_explainer_ba_shapes.py explain/gnn_explainer_link_pred.py
explain/graphmask_explainer.py
hetero/bipartite_sage.py hetero/dmgi_unsup.py hetero/han_imdb.py hetero/hetero_conv_dblp.py
hetero/hetero_link_pred.py hetero/hgt_dblp.py hetero/temporal_link_pred.py hetero/to_hetero_mag.py
jit/film.py jit/gat.py jit/gcn.py jit/gin.py
"""
ARGUMENTS = {"dgcnn_classification.py": ("--num_workers", "0")}
EXAMPLES = tuple(Example(name, ARGUMENTS.get(name, ())) for name in NAMES.split())
