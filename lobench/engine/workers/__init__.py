"""Workers of this machine: what crosses to them, the pool, devices, parcels of files."""
