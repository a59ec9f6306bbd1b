"""The parts that all simulated machines share: files, reports, ledgers, traces and registries."""
