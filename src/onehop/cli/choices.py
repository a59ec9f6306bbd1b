"""The names that options accept, for reading a command line without torch.

Each list repeats what a module that needs torch defines; tests/cli/test_choices.py compares them.
"""

OPERATIONS = ("sum", "weighted_sum", "mean", "max", "min", "sum_backward")
OPERATION_WIDTHS = (16, 32, 64, 128, 256)
OPERATION_PEERS = (
    "torch-csr-int32",
    "torch-csr-int64",
    "torch-reduce-int32",
    "torch-reduce-int64",
    "pyg-edge_index",
    "pyg-EdgeIndex",
    "scipy",
    "numba",
    "torch_sparse",
    "isplib",
    "dgl",
)
PUBLISHED_MODELS = (
    "ogb-gcn",
    "ogb-sage",
    "ogb-gat",
    "products-gcn",
    "products-sage",
    "cora-gcn",
    "cora-gat",
    "loader-sage",
)
MODELS = (*PUBLISHED_MODELS, "gcn", "sage", "sage-sum", "gin", "gin-norm", "gat", "gatv2", "transformer")
MODEL_PEERS = ("pyg-edge_index", "pyg-torch-csr", "pyg-SparseTensor", "pyg-isplib")
ABLATIONS = ("keep_memory", "reuse", "associate")
VARIANTS = ("bf16", "compiled", "pyg-bf16", "pyg-compiled")
ROW_FLOATS = (16, 32, 64, 128, 256, 512)
ROW_MULTIPLE = 16
SERVED_MODELS = ("gcn", "sage", "gatv2")
REQUEST_SIZES = ((40, 160), (400, 1_600), (4_000, 16_000))

DEMO_MODELS = (
    "ogb-gcn",
    "ogb-sage",
    "cora-gcn",
    "cora-gat",
    "gat",
    "gcn",
    "sage",
    "gin",
    "gatv2",
    "transformer",
    "ogb-gat",
    "products-gcn",
    "products-sage",
)
DEMO_DEFAULT = ("ogb-gcn", "ogb-sage", "cora-gcn", "cora-gat", "gat")
DEMO_WIDTH = 64
DEMO_EPOCHS = (2, 100)

TUNED_OPS = ("aggregate", "sddmm", "edge_softmax", "attention")
GPU_OPS = (*TUNED_OPS, "gat", "gatv2")
REDUCTIONS = ("sum", "mean", "max", "min")
TUNING_S, GPU_TUNING_S = 10.0, 30.0

ID_DTYPES = ("int32", "int64", "uint32", "uint64")
WEIGHT_DTYPES = ("float32", "float64")

WORKS = ("pygim", "grande", "io-aware", "isplib")
FITTED_WORKS = ("pygim", "grande")
WORK_ON_GPU = "io-aware"

DRAM_PRESETS = (
    "DDR5_3200AN",
    "DDR5_4800AN",
    "DDR5_5600AN",
    "DDR5_6400AN",
    "DDR4_2400",
    "DDR3_1600K",
    "LPDDR5_6400",
    "HBM1_1000",
    "HBM2_2000",
    "HBM3_6400",
)
DRAM_PATTERNS = ("random", "sequential")
DRAM_OPERATIONS = ("read", "write")
DRAM_LEVELS = ("command", "curve")
DRAM_LAYOUTS = ("row_first", "bg_first", "mop4")
DRAM_SCHEDULERS = ("fr_fcfs", "fr_fcfs_rows")
DRAM_REFRESHES = ("all_bank", "same_bank")
DRAM_FORMATS = ("load_store", "read_write")
COMMAND_FILES = (".csv", ".trace")

GPUS = ("a100_80gb", "gtx_1080_ti", "h100_80gb", "h200", "rtx_2080_ti", "rtx_3090")
GPU_ORDERS = ("own", "random", "degree", "rcm", "community")

NDP_PRESETS = ("gnnear", "grande_16", "grande_32")
NDP_MODELS = ("gcn", "sage", "gin")
NDP_MAPPINGS = (
    "adaptive",
    "rank",
    "dimm",
    "channel",
    "2-channel",
    "4-channel",
    "system",
    "baseline",
    "prior",
)
NDP_TILINGS = ("rows", "ranks", "round_robin", "index", "none", "adaptive")
NDP_HOST_ORDERS = ("after", "ahead", "between", "early")

PIM_PRESETS = ("upmem_v1a", "upmem_v1b", "hbm_pim_like", "aim_like")
PIM_DTYPES = ("int8", "int16", "int32", "int64", "float32", "float64")
PIM_MODELS = ("gcn", "gin", "sage")
PIM_PLANS = ("tuned", "default", "grande", "gnnear", "gnmp", "sparsep")
