"""Local workers: processes, their protocol and devices, and parcels of files for workers elsewhere."""
