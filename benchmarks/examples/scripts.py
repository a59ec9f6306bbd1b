"""The scripts of PyG's folder ``examples`` that are run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A script.

    Attributes:
        name: Its path within ``examples``.
        arguments: On its command line.
    """

    name: str
    arguments: tuple[str, ...] = ()


EXAMPLES = (
    Example("agnn.py"),
    Example("ar_link_pred.py"),
    Example("argva_node_clustering.py"),
    Example("arma.py"),
    Example("autoencoder.py"),
    Example("cluster_gcn_reddit.py"),
    Example("colors_topk_pool.py"),
    Example("cora.py"),
    Example("dgcnn_classification.py", ("--num_workers", "0")),
    Example("dir_gnn.py"),
    Example("dna.py"),
    Example("film.py"),
    Example("gat.py"),
    Example("gcn.py"),
    Example("gcn2_cora.py"),
    Example("gcn2_ppi.py"),
    Example("geniepath.py"),
    Example("glnn.py"),
    Example("gpse.py"),
    Example("graph_saint.py"),
    Example("graph_gps.py"),
    Example("graph_unet.py"),
    Example("infomax_transductive.py"),
    Example("lightgcn.py"),
    Example("link_pred.py"),
    Example("linkx.py"),
    Example("mem_pool.py"),
    Example("mixhop.py"),
    Example("mnist_graclus.py"),
    Example("mnist_voxel_grid.py"),
    Example("mutag_gin.py"),
    Example("node2vec.py"),
    Example("ogbn_proteins_deepgcn.py"),
    Example("pmlp.py"),
    Example("pna.py"),
    Example("pointnet2_classification.py"),
    Example("ppi.py"),
    Example("proteins_diff_pool.py"),
    Example("proteins_dmon_pool.py"),
    Example("proteins_gmt.py"),
    Example("proteins_mincut_pool.py"),
    Example("proteins_topk_pool.py"),
    Example("reddit.py"),
    Example("rect.py"),
    Example("rev_gnn.py"),
    Example("rgat.py"),
    Example("rgcn.py"),
    Example("rgcn_link_pred.py"),
    Example("sgc.py"),
    Example("shadow.py"),
    Example("signed_gcn.py"),
    Example("super_gat.py"),
    Example("tagcn.py"),
    Example("tgn.py"),
    Example("unimp_arxiv.py"),
    Example("upfd.py"),
    Example("compile/gcn.py"),
    Example("compile/gin.py"),
    Example("contrib/pgm_explainer_node_classification.py"),
    Example("explain/gnn_explainer.py"),
    Example("explain/gnn_explainer_ba_shapes.py"),
    Example("explain/gnn_explainer_link_pred.py"),
    Example("explain/graphmask_explainer.py"),
    Example("hetero/bipartite_sage.py"),
    Example("hetero/dmgi_unsup.py"),
    Example("hetero/han_imdb.py"),
    Example("hetero/hetero_conv_dblp.py"),
    Example("hetero/hetero_link_pred.py"),
    Example("hetero/hgt_dblp.py"),
    Example("hetero/temporal_link_pred.py"),
    Example("hetero/to_hetero_mag.py"),
    Example("jit/film.py"),
    Example("jit/gat.py"),
    Example("jit/gcn.py"),
    Example("jit/gin.py"),
)
