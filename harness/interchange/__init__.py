"""Files and services of others: pytest-benchmark both ways, TensorBoard, Weights & Biases, MLflow."""
