"""Checkpoint folders: names, manifest, safetensors files, verification, conversion; what ranks do is in ``train``."""
