"""Inventory files: lists of hosts, and the static inventories of Ansible."""
