"""Measurements that no command of users needs. Run them from the root of the repository."""
