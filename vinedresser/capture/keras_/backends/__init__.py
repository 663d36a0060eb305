"""The frameworks under Keras: tensor access and copies into recordings."""
