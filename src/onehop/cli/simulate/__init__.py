"""``onehop simulate``: graphs and models on simulated machines, a verb for each machine."""

from onehop.cli.groups import group
from onehop.cli.simulate.dram import dram
from onehop.cli.simulate.gpu import gpu
from onehop.cli.simulate.ndp import ndp
from onehop.cli.simulate.pim import pim

app = group("Runs a graph on a simulated machine: the true result, and where time and energy go.")
for verb in (ndp, pim, dram, gpu):
    app.command()(verb)
