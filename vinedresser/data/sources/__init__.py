"""Objects that training data is read from: files and objects on S3."""
