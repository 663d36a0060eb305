"""FullGrad of Keras 3 models on TensorFlow."""
