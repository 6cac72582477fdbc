"""File formats of curves: one reader each (W&B, TensorBoard, MLflow, csv, parquet, ...)."""
