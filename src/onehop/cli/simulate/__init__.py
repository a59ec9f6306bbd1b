"""The work of ``onehop simulate``: graphs and models on simulated machines, a module for each machine."""
