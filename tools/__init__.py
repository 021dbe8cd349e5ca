"""Tools beside the package: how the model in the box is made (`tools/tiny`)."""
