"""Transfers that others measured on an UPMEM server: two benchmarks to fit the links, two to test the fit.

Source: VIA-Research/uPIMulator at 870d916, tools/upmem_reg_model/data/input.xlsx, columns hw_cpu_to_dpu and
hw_dpu_to_cpu: milliseconds to and from the cores of one rank. The table has the benchmarks whose host sends
each core its own block, in parallel, with blocks of at least 32 KiB: VA, RED, SCAN-SSA, SCAN-RSS. Bytes of a
block follow from the benchmark and its parameter, as stated in the same folder: the input is two vectors of
4-byte numbers (VA) or one vector of 8-byte numbers (the others); the output is one vector, except for RED.
"""

from typing import NamedTuple


class Transfer(NamedTuple):
    """The transfers of one run.

    Attributes:
        benchmark: The benchmark's name.
        cores: Number of cores, all of one rank.
        in_bytes: Bytes that the host sends to each core.
        in_ms: Time of sending, in ms.
        out_bytes: Bytes that each core returns; 0 if they are too few to give a rate.
        out_ms: Time of returning, in ms.
    """

    benchmark: str
    cores: int
    in_bytes: int
    in_ms: float
    out_bytes: int
    out_ms: float


# The benchmarks that determine the rates of one core and of a full rank; no constant comes from the other
# benchmarks.
FITTED = ("VA", "RED")

TRANSFERS = (
    Transfer("RED", 1, 16777216, 35.232, 0, 0.0),
    Transfer("RED", 4, 1048576, 3.3645, 0, 0.0),
    Transfer("RED", 4, 2097152, 6.6115, 0, 0.0),
    Transfer("RED", 4, 4194304, 9.3308, 0, 0.0),
    Transfer("RED", 4, 8388608, 25.207, 0, 0.0),
    Transfer("RED", 4, 16777216, 65.078, 0, 0.0),
    Transfer("RED", 16, 262144, 2.324, 0, 0.0),
    Transfer("RED", 16, 524288, 3.5054, 0, 0.0),
    Transfer("RED", 16, 1048576, 11.347, 0, 0.0),
    Transfer("RED", 16, 2097152, 19.875, 0, 0.0),
    Transfer("RED", 64, 65536, 0.82897, 0, 0.0),
    Transfer("RED", 64, 131072, 2.0541, 0, 0.0),
    Transfer("RED", 64, 262144, 3.2954, 0, 0.0),
    Transfer("RED", 64, 524288, 10.419, 0, 0.0),
    Transfer("SCAN-RSS", 1, 8388608, 12.119, 8388608, 73.217),
    Transfer("SCAN-RSS", 4, 524288, 1.5526, 524288, 6.1841),
    Transfer("SCAN-RSS", 4, 1048576, 1.5787, 1048576, 9.1048),
    Transfer("SCAN-RSS", 4, 2097152, 4.8895, 2097152, 18.593),
    Transfer("SCAN-RSS", 4, 4194304, 14.066, 4194304, 43.658),
    Transfer("SCAN-RSS", 4, 8388608, 28.379, 8388608, 79.493),
    Transfer("SCAN-RSS", 16, 131072, 0.91379, 131072, 3.0247),
    Transfer("SCAN-RSS", 16, 262144, 1.1096, 262144, 5.1741),
    Transfer("SCAN-RSS", 16, 524288, 3.0223, 524288, 9.8843),
    Transfer("SCAN-RSS", 16, 1048576, 8.8808, 1048576, 21.859),
    Transfer("SCAN-RSS", 16, 2097152, 23.769, 2097152, 46.525),
    Transfer("SCAN-RSS", 64, 32768, 0.59972, 32768, 1.5361),
    Transfer("SCAN-RSS", 64, 65536, 0.79219, 65536, 2.154),
    Transfer("SCAN-RSS", 64, 131072, 1.5129, 131072, 3.7139),
    Transfer("SCAN-RSS", 64, 262144, 4.4422, 262144, 10.356),
    Transfer("SCAN-SSA", 1, 8388608, 13.775, 8388608, 75.269),
    Transfer("SCAN-SSA", 4, 524288, 1.3737, 524288, 5.9379),
    Transfer("SCAN-SSA", 4, 1048576, 1.9444, 1048576, 10.049),
    Transfer("SCAN-SSA", 4, 2097152, 4.9036, 2097152, 20.223),
    Transfer("SCAN-SSA", 16, 131072, 1.0236, 131072, 3.2405),
    Transfer("SCAN-SSA", 16, 262144, 1.6796, 262144, 5.8548),
    Transfer("SCAN-SSA", 16, 524288, 3.8119, 524288, 12.627),
    Transfer("SCAN-SSA", 16, 1048576, 9.7215, 1048576, 24.404),
    Transfer("SCAN-SSA", 64, 32768, 0.69725, 32768, 1.8273),
    Transfer("SCAN-SSA", 64, 65536, 0.97103, 65536, 2.7855),
    Transfer("SCAN-SSA", 64, 131072, 2.2003, 131072, 6.4812),
    Transfer("SCAN-SSA", 64, 262144, 4.7565, 262144, 11.035),
    Transfer("VA", 1, 16777216, 29.987, 8388608, 76.856),
    Transfer("VA", 4, 1048576, 1.6173, 524288, 4.6096),
    Transfer("VA", 4, 2097152, 4.7148, 1048576, 11.453),
    Transfer("VA", 4, 4194304, 10.443, 2097152, 20.939),
    Transfer("VA", 4, 8388608, 26.573, 4194304, 42.278),
    Transfer("VA", 4, 16777216, 65.821, 8388608, 84.938),
    Transfer("VA", 4, 18874368, 65.302, 9437184, 87.999),
    Transfer("VA", 16, 262144, 1.9081, 131072, 3.266),
    Transfer("VA", 16, 524288, 2.2168, 262144, 5.0272),
    Transfer("VA", 16, 1048576, 7.2361, 524288, 11.005),
    Transfer("VA", 16, 2097152, 18.15, 1048576, 20.601),
    Transfer("VA", 16, 4194304, 53.019, 2097152, 48.179),
    Transfer("VA", 16, 4718592, 49.138, 2359296, 50.347),
    Transfer("VA", 64, 65536, 1.0172, 32768, 1.5548),
    Transfer("VA", 64, 131072, 1.8993, 65536, 2.9161),
    Transfer("VA", 64, 262144, 4.9351, 131072, 6.3256),
    Transfer("VA", 64, 524288, 7.8041, 262144, 10.137),
    Transfer("VA", 64, 1179648, 20.84, 589824, 20.165),
)
